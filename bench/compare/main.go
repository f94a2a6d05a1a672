// Command compare runs Fairway and kube-proxy for real, each in network namespaces of its
// own and against the same API, and measures the one beside the other: numbers of
// Services, modes and measures come in as flags, raw rows go out to a CSV file, and a
// table, the bars and a chart are made of them. It never touches the rules of the
// machine it runs on, and a mode that is too slow is stopped, said so and not guessed at.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fairway/bench/report"
	"fairway/test/netlab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// flags are the command line, as typed.
type flags struct {
	sizes, modes, measures, out string
	resume, report              bool
	pause                       time.Duration
	options
}

func parseFlags() flags {
	var f flags
	flag.StringVar(&f.sizes, "sizes", "", "numbers of Services (default: each mode's own list)")
	flag.StringVar(&f.modes, "modes", "all", "PROGRAM/MODE, PROGRAM or MODE, comma separated")
	flag.StringVar(&f.measures, "measures", strings.Join(measures(), ","), "parts to measure after the cold sync")
	flag.StringVar(&f.out, "out", "bench/results/proxy", "rows go to this name with .csv, the table with .txt, the chart with .svg")
	flag.StringVar(&f.bin, "bin", "bin", "directory of the programs fairway and kube-proxy")
	flag.IntVar(&f.endpoints, "endpoints", 10, "endpoints of each Service")
	flag.IntVar(&f.rounds, "rounds", 5, "how often a small step is done")
	flag.IntVar(&f.contests, "connect-rounds", 12, "rounds of connects")
	flag.IntVar(&f.dials, "dials", 2000, "connects of a lane in a round")
	flag.DurationVar(&f.limit, "limit", time.Minute, "a cold sync that takes longer is stopped, and the mode not tried with more Services")
	flag.DurationVar(&f.pause, "quiet", 20*time.Second, "the longest wait for the machine to come to rest before a session; 0 is no wait")
	flag.BoolVar(&f.resume, "resume", false, "keep the rows that are there and measure only what is missing")
	flag.BoolVar(&f.report, "report", false, "measure nothing: table, bars and chart of the rows that are there")
	flag.Parse()
	return f
}

func run(ctx context.Context) error {
	f := parseFlags()
	list, err := chosen(f.modes)
	if err != nil {
		return err
	}
	f.options.measures = strings.FieldsFunc(f.measures, func(r rune) bool { return r == ',' })
	for _, m := range f.options.measures {
		if !slices.Contains(measures(), m) {
			return fmt.Errorf("-measures: %q is none of %v", m, measures())
		}
	}
	work, err := plan(list, f.sizes)
	if err != nil {
		return err
	}
	if !f.report {
		if err := f.prepare(); err != nil {
			return err
		}
		c, err := enterClients(f.groups)
		if err != nil {
			return err
		}
		defer c.leave()
		f.clients = c.dir
		if err := f.measure(ctx, work); err != nil {
			return err
		}
	}
	return f.publish()
}

// prepare checks the machine and begins the file.
func (f *flags) prepare() (err error) {
	if err := netlab.Missing(); err != nil {
		return err
	}
	if f.groups, err = groups(); err != nil {
		return err
	}
	sweep(f.groups)
	for _, p := range []string{"fairway", "kube-proxy"} {
		if _, err := os.Stat(filepath.Join(f.bin, p)); err != nil {
			return fmt.Errorf("%w (make bench-proxy builds it)", err)
		}
	}
	if f.bin, err = filepath.Abs(f.bin); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.out), 0o755); err != nil {
		return err
	}
	if f.resume {
		return nil
	}
	if err := os.Remove(f.out + ".csv"); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// job is a mode at a size.
type job struct {
	mode     mode
	services int
}

// plan puts the sizes in ascending order and within each the modes as listed, so that
// what is compared is measured one after the other.
func plan(list []mode, sizes string) ([]job, error) {
	var only []int
	for _, s := range strings.FieldsFunc(sizes, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1<<16 {
			return nil, fmt.Errorf("-sizes: %q is not a number of Services up to 65536", s)
		}
		only = append(only, n)
	}
	var all []int
	for _, m := range list {
		all = append(all, m.sizes...)
	}
	if len(only) > 0 {
		all = only
	}
	slices.Sort(all)
	var out []job
	for _, n := range slices.Compact(all) {
		for _, m := range list {
			if len(only) > 0 || slices.Contains(m.sizes, n) {
				out = append(out, job{m, n})
			}
		}
	}
	return out, nil
}

// measure runs the jobs that have not been done, and appends the rows of each.
func (f *flags) measure(ctx context.Context, work []job) error {
	start := time.Now()
	for i, j := range work {
		rows, err := report.Read(f.out + ".csv")
		if err != nil {
			return err
		}
		if done, why := settled(rows, j); done {
			fmt.Fprintf(os.Stderr, "%s, %d Services: %s\n", j.mode, j.services, why)
			continue
		}
		if err := report.Drop(f.out+".csv", j.mode.program, j.mode.name, j.services); err != nil {
			return err
		}
		quiet(ctx, f.pause)
		fmt.Fprintf(os.Stderr, "[%d of %d, %s] %s, %d Services x %d endpoints\n", i+1, len(work), time.Since(start).Round(time.Second), j.mode, j.services, f.endpoints)
		s := &session{options: f.options, mode: j.mode, services: j.services, log: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "    "+format+"\n", args...)
		}}
		err = s.run(ctx)
		if ctx.Err() != nil {
			return ctx.Err() // half a session is measured anew
		}
		if err != nil && !errors.Is(err, errStopped) {
			fmt.Fprintf(os.Stderr, "    failed: %v\n", err)
		}
		if errors.Is(err, errStopped) { // by cold
			fmt.Fprintf(os.Stderr, "    not programmed after %s: stopped; it is not tried with more Services\n", f.limit)
		}
		if err := report.Write(f.out+".csv", s.rows); err != nil {
			return err
		}
	}
	return nil
}

// settled tells whether a job needs no session, and why.
func settled(rows report.Rows, j job) (bool, string) {
	for _, n := range rows.Sizes(j.mode.program, j.mode.name) {
		has := func(measure string) bool { return len(rows.Values(j.mode.program, j.mode.name, n, measure)) > 0 }
		switch {
		case n == j.services && has(report.Complete):
			return true, "measured before"
		case n <= j.services && has(report.Stopped):
			return true, fmt.Sprintf("not tried: it was stopped at %d", n)
		case n < j.services && has(report.Unavailable):
			return true, fmt.Sprintf("not tried: it did not run at %d", n)
		}
	}
	return false, ""
}

// publish prints the table and the bars, and draws the chart. Beside the rows it keeps
// the text, with the machine it was measured on.
func (f *flags) publish() error {
	rows, err := report.Read(f.out + ".csv")
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s.csv has no rows", f.out)
	}
	text := report.Table(rows) + "\n" + report.Bars(rows)
	if !f.report {
		text = machine() + "\n\n" + text
		if err := os.WriteFile(f.out+".txt", []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Print(text)
	return os.WriteFile(f.out+".svg", []byte(report.Chart(rows)), 0o644)
}
