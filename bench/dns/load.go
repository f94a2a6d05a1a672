package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	wire "github.com/miekg/dns"
)

// result is one run of dnsperf against one server.
type result struct {
	server, load string
	fixed        bool // at a fixed rate
	completed    int
	lost         int
	qps          float64
	cpu          float64 // microseconds of the server's processor time per query
	p50, p99     float64 // milliseconds, only at a fixed rate
	bytes        float64 // of a reply, on average
	rss, peak    float64 // megabytes
	gap          time.Duration
}

// agree asks every server some questions of the load and compares the answers with the
// first server's: records and response codes, not their order.
func (st *stage) agree(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := bytes.Split(data, []byte("\n"))
	for i := 0; i < 50 && i < len(lines); i++ {
		name, typ, _ := strings.Cut(string(lines[i]), " ")
		want := ""
		for k, s := range st.servers {
			m, err := s.query(wire.Fqdn(name), wire.StringToType[typ])
			for try := 0; try < 100 && (err != nil || m.Rcode == wire.RcodeServerFailure); try++ {
				time.Sleep(100 * time.Millisecond) // not everything is there yet
				m, err = s.query(wire.Fqdn(name), wire.StringToType[typ])
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", s.name, lines[i], err)
			}
			got := answerOf(m)
			if k == 0 {
				want = got
			} else if got != want {
				return fmt.Errorf("%s says %q to %s, %s says %q", s.name, got, lines[i], st.servers[0].name, want)
			}
		}
	}
	return nil
}

func answerOf(m *wire.Msg) string {
	var out []string
	for _, rr := range m.Answer {
		f := strings.Fields(rr.String())
		if f[3] == "SRV" {
			f = append(f[:4], f[6:]...) // weights are free
		}
		out = append(out, strings.Join(f, " "))
	}
	slices.Sort(out)
	return fmt.Sprint(wire.RcodeToString[m.Rcode], out)
}

// ask runs dnsperf for a time; rate 0 is as fast as it can.
func (s *server) ask(ctx context.Context, path string, length time.Duration, rate int) (result, error) {
	args := []string{"-s", s.addr, "-p", strconv.Itoa(s.port), "-d", path, "-c", "8", "-T", "1", "-q", "200", "-t", "2",
		"-l", strconv.Itoa(int(length.Seconds())), "-O", "suppress=timeout,congestion,sendfailed,sockready,unexpected"}
	if rate > 0 {
		args = append(args, "-Q", strconv.Itoa(rate), "-v")
	}
	before := s.used()
	out, err := exec.CommandContext(ctx, "dnsperf", args...).CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("dnsperf: %w\n%s", err, out[max(0, len(out)-2000):])
	}
	used := s.used() - before
	r := result{server: s.name, fixed: rate > 0}
	var latencies []float64
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if rest, ok := strings.CutPrefix(line, "> "); ok {
			if f := strings.Fields(rest); len(f) == 4 {
				if v, err := strconv.ParseFloat(f[3], 64); err == nil {
					latencies = append(latencies, v*1000)
				}
			}
			continue
		}
		r.read(line)
	}
	if r.completed == 0 {
		return r, fmt.Errorf("%s answered nothing\n%s", s.name, out[max(0, len(out)-2000):])
	}
	r.cpu = used / float64(r.completed) * 1e6
	if slices.Sort(latencies); len(latencies) > 0 {
		r.p50, r.p99 = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	}
	return r, nil
}

// read takes a line of dnsperf's summary.
func (r *result) read(line string) {
	key, value, ok := strings.Cut(line, ":")
	f := strings.Fields(value)
	if !ok || len(f) == 0 {
		return
	}
	n, _ := strconv.ParseFloat(strings.TrimSuffix(f[0], ","), 64)
	switch key {
	case "Queries completed":
		r.completed = int(n)
	case "Queries lost":
		r.lost = int(n)
	case "Queries per second":
		r.qps = n
	case "Average packet size":
		if len(f) == 4 {
			r.bytes, _ = strconv.ParseFloat(f[3], 64)
		}
	}
}

// used is the processor time a server's threads have had, in seconds; theirs never end.
func (s *server) used() float64 {
	total := 0.0
	for _, pid := range s.processes() {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, path := range tasks {
			data, _ := os.ReadFile(path)
			ns, _, _ := strings.Cut(string(data), " ")
			v, _ := strconv.ParseFloat(ns, 64)
			total += v / 1e9
		}
	}
	return total
}

// processes are those of the server's process group.
func (s *server) processes() []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[2] == strconv.Itoa(s.cmd.Process.Pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out = append(out, pid)
		}
	}
	return out
}

func (s *server) rss() float64  { return s.memory("VmRSS:") }
func (s *server) peak() float64 { return s.memory("VmHWM:") }

func (s *server) memory(field string) float64 {
	total := 0.0
	for _, pid := range s.processes() {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == field {
				kb, _ := strconv.ParseFloat(f[1], 64)
				total += kb / 1024
			}
		}
	}
	return total
}
