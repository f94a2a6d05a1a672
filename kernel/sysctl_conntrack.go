package kernel

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// ConntrackSettings are what connection tracking is set to; zero leaves the kernel's.
type ConntrackSettings struct {
	// MaxPerCore connections per CPU are tracked, at least Min, at most a million
	// (kube-proxy's bound). 0 leaves the limit and ignores Min.
	MaxPerCore, Min                              int
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	TCPBeLiberal                                 bool
}

const (
	conntrackDir   = "net/netfilter/nf_conntrack_"
	conntrackHash  = "/sys/module/nf_conntrack/parameters/hashsize"
	mostConntracks = 1 << 20
)

// Apply sets the current network namespace's connection tracking. The limit is only ever
// raised. Every setting is tried; each error names the one that stays as it is.
func (s ConntrackSettings) Apply() []error {
	errs := s.applyMax()
	set := func(name, value string) {
		if err := SetSysctl(0, conntrackDir+name, value); err != nil {
			errs = append(errs, err)
		}
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"tcp_timeout_established", s.TCPEstablished}, {"tcp_timeout_close_wait", s.TCPCloseWait},
		{"udp_timeout", s.UDP}, {"udp_timeout_stream", s.UDPStream},
	} {
		if t.d > 0 {
			set(t.name, strconv.Itoa(int(t.d/time.Second)))
		}
	}
	if s.TCPBeLiberal {
		set("tcp_be_liberal", "1")
	}
	return errs
}

func (s ConntrackSettings) applyMax() []error {
	want := s.max(cpus())
	if want == 0 {
		return nil
	}
	text, err := readSysctl(conntrackDir + "max")
	if err != nil {
		return []error{err}
	}
	var errs []error
	if now, err := strconv.Atoi(text); err != nil || now < want {
		if err := SetSysctl(0, conntrackDir+"max", strconv.Itoa(want)); err != nil {
			return []error{err} // the table need not grow either
		}
	}
	// A quarter of the limit as buckets keeps the chains at four entries.
	buckets, err := readSysctl(conntrackHash)
	if err != nil {
		return []error{err}
	}
	if now, err := strconv.Atoi(buckets); err != nil || now < want/4 {
		if err := SetSysctl(0, conntrackHash, strconv.Itoa(want/4)); err != nil {
			errs = append(errs, fmt.Errorf("the table is small for %d flows: %w", want, err))
		}
	}
	return errs
}

func (s ConntrackSettings) max(cpus int) int {
	if s.MaxPerCore <= 0 {
		return 0
	}
	return max(min(s.MaxPerCore*cpus, mostConntracks), s.Min)
}

// cpus counts the machine's CPUs: the limit is for all of it, whatever part of it this
// process was given.
func cpus() int {
	data, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(data)), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil {
			return runtime.NumCPU()
		}
		n += b - a + 1
	}
	return n
}
