package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fairway/bench/report"
)

// options are what to measure, and how long.
type options struct {
	bin       string
	endpoints int
	rounds    int // of each small step
	contests  int // rounds of connects
	dials     int // in one such round
	limit     time.Duration
	measures  []string
	groups    string // where control groups are made
	clients   string // the one this process is in
}

func (o options) wants(measure string) bool { return slices.Contains(o.measures, measure) }

// measures are the parts of a session that can be chosen; the cold sync comes always.
func measures() []string { return []string{"steps", "connect", "restart", "resync"} }

// session is one mode at one number of Services.
type session struct {
	options
	mode     mode
	services int
	dir      string
	stage    *stage
	proc     *process
	next     int // the first Service that was never there
	log      func(format string, args ...any)
	rows     report.Rows
}

// errStopped is a mode that was given up at a size: it is not asked for more.
var errStopped = errors.New("over the limit")

func (s *session) record(measure string, round int, value float64) {
	s.rows = append(s.rows, report.Row{Program: s.mode.program, Mode: s.mode.name, Services: s.services, Endpoints: s.endpoints,
		Measure: measure, Round: round, Value: value})
}

// run measures everything. Rows recorded before an error are kept.
func (s *session) run(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", fmt.Sprintf("%s%d-", groupPrefix, os.Getpid())); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	if s.stage, err = newStage(s.services, s.endpoints); err != nil {
		return err
	}
	defer s.stage.close()
	s.next = s.services
	defer func() {
		if s.proc != nil {
			s.proc.stop(10 * time.Second)
		}
	}()
	if err := s.cold(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"steps", s.steps}, {"rest", s.settle}, {"connect", s.connects}, {"restart", s.restart}, {"resync", s.resync}} {
		if part.name != "rest" && !s.wants(part.name) {
			continue
		}
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	s.record(report.Complete, 0, 1)
	return nil
}

// start runs the mode's program on a stage.
func (s *session) start(st *stage, name string) (*process, error) {
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	argv, env, err := s.mode.command(s.bin, dir, st.url)
	if err != nil {
		return nil, err
	}
	var enter func() error
	if s.mode.asks == "ebpf" {
		if st.room == nil {
			if st.room, err = newRoom(st, s.clients, dir); err != nil {
				return nil, err
			}
		}
		enter = st.room.enter
	}
	return spawn(st.lab.Node, enter, s.groups, filepath.Join(dir, "log"), argv, env)
}

const (
	calm     = 1200 * time.Millisecond // nothing done for so long is rest; kube-proxy waits a second between two syncs
	restless = 3 * time.Minute
	samples  = 200 // Services asked for to tell that all are programmed
)

// cold is a start on an empty kernel.
func (s *session) cold(ctx context.Context) error {
	var err error
	if s.proc, err = s.start(s.stage, "main"); err != nil {
		return err
	}
	took, err := s.proc.programmed(ctx, s.stage, s.sample(), s.limit)
	if errors.Is(err, errStopped) {
		s.record(report.Stopped, 0, s.limit.Seconds())
		s.log("its last words: %s", s.proc.lastWords())
		return err
	}
	if err != nil {
		s.record(report.Unavailable, 0, 1)
		return err
	}
	s.record(report.Cold, 0, took.Seconds())
	cpu, err := s.proc.rest(ctx, calm, restless)
	if err != nil {
		return err
	}
	s.record(report.ColdCPU, 0, cpu.Seconds())
	_, peak := s.proc.memory()
	s.record(report.Peak, 0, float64(peak))
	broken := s.stage.silent(s.services)
	s.record(report.Broken, 0, float64(broken))
	s.log("cold %.2f s, %.2f s of processor, %d MB at most, %d of %d Services do not answer", took.Seconds(), cpu.Seconds(), peak>>20, broken, s.services)
	return nil
}

// settle looks at the memory when there has been little to do for a while, which is what
// a node pays all day.
func (s *session) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(15*time.Second - time.Since(s.proc.started)):
	}
	if _, err := s.proc.rest(ctx, calm, restless); err != nil {
		return err
	}
	resident, _ := s.proc.memory()
	s.record(report.Resident, 0, float64(resident))
	s.log("%d MB at rest", resident>>20)
	return nil
}

// sample is some Services spread over all, and the last.
func (s *session) sample() []int {
	out := rand.New(rand.NewPCG(1, 2)).Perm(s.services)
	out = out[:min(samples, len(out))]
	return append(out, s.services-1)
}

// silent counts the Services that do not answer when asked three times.
func (st *stage) silent(services int) int {
	n := 0
	st.dial.do(func() {
		for i := range services {
			if !answers(vip(i)) {
				n++
			}
		}
	})
	return n
}

func answers(to netip.AddrPort) bool {
	for range 3 {
		if _, err := connect(to, 100*time.Millisecond); err == nil {
			return true
		}
	}
	return false
}

// programmed waits until every one of the Services answers, and tells how long after
// the process's start that was.
func (p *process) programmed(ctx context.Context, st *stage, list []int, limit time.Duration) (time.Duration, error) {
	for {
		var at time.Time
		st.dial.do(func() {
			for len(list) > 0 {
				if _, err := connect(vip(list[0]), 5*time.Millisecond); err != nil {
					return
				}
				list = list[1:]
			}
			at = time.Now()
		})
		if len(list) == 0 {
			return at.Sub(p.started), nil
		}
		if time.Since(p.started) > limit {
			return 0, errStopped
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-p.done:
			return 0, p.ended()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// restart ends the process and starts it anew with its rules in place. A Service that
// came meanwhile tells when it has caught up.
func (s *session) restart(ctx context.Context) error {
	for round := range 3 {
		s.proc.stop(10 * time.Second)
		fresh := s.next
		if err := s.stage.add(fresh, s.endpoints); err != nil {
			return err
		}
		s.next++
		var err error
		if s.proc, err = s.start(s.stage, fmt.Sprintf("restart%d", round)); err != nil {
			return err
		}
		took, err := s.proc.programmed(ctx, s.stage, []int{fresh}, s.limit)
		if errors.Is(err, errStopped) {
			s.record(report.Halted, round, s.limit.Seconds())
			s.log("restart not done after %s; a full resync is not tried", s.limit)
			s.measures = nil
			return nil
		}
		if err != nil {
			return err
		}
		cpu, err := s.proc.rest(ctx, calm, restless)
		if err != nil {
			return err
		}
		s.record(report.Restart, round, took.Seconds())
		s.record(report.RestartCPU, round, cpu.Seconds())
		s.log("restart %.2f s, %.2f s of processor", took.Seconds(), cpu.Seconds())
		if took > 15*time.Second {
			break // once is telling enough
		}
	}
	return nil
}

// resync dials random Services, 500 times a second, while the process starts anew and
// compares or writes all its rules.
func (s *session) resync(ctx context.Context) error {
	stop, count := make(chan struct{}), make(chan [2]int, 1)
	go func() {
		var made, failed int
		for {
			select {
			case <-stop:
				count <- [2]int{made, failed}
				return
			case <-time.After(2 * time.Millisecond):
			}
			s.stage.dial.do(func() {
				made++
				if _, err := connect(vip(rand.IntN(s.services)), time.Second); err != nil {
					failed++
				}
			})
		}
	}()
	err := s.again(ctx)
	close(stop)
	n := <-count
	if err != nil {
		return err
	}
	s.record(report.Dials, 0, float64(n[0]))
	s.record(report.Failed, 0, float64(n[1]))
	s.log("%d of %d dials failed in a full resync", n[1], n[0])
	return nil
}

func (s *session) again(ctx context.Context) error {
	s.proc.stop(10 * time.Second)
	var err error
	if s.proc, err = s.start(s.stage, "resync"); err != nil {
		return err
	}
	select { // it has not begun, and looks at rest
	case <-ctx.Done():
	case <-time.After(500 * time.Millisecond):
	}
	if s.mode.asks == "userspace" { // it carries the dials itself, and never rests
		_, err = s.proc.programmed(ctx, s.stage, []int{s.services - 1}, s.limit)
		return err
	}
	_, err = s.proc.rest(ctx, calm, restless)
	return err
}
