package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"fairway/bench/report"

	"golang.org/x/sys/unix"
)

// lane is one way to reach an endpoint in a round of connects.
type lane struct {
	name  string
	stage *stage
	proc  *process // nil for the direct one
	to    func() netip.AddrPort
	// measure is what its p50 is recorded as, cost its processor time, "" for not at all.
	measure, cost string
	p50           float64 // microseconds, of the last round
	cpu           float64 // seconds for 10,000 dials
	// failed counts the connects of the last round that took a second or were refused.
	failed int
}

// connects dials in rounds: the same number of connections to random Services of the full
// stage, through the mode with one Service, and on the direct way to the same endpoints
// and to those of one Service, for a kernel has more to do with many hosts than with few;
// and through nothing but the kernel's own translation, which is the least that a mode of
// rules can cost. The order turns: what disturbs the machine for a while disturbs all.
func (s *session) connects(ctx context.Context) error {
	direct, err := newStage(1, s.endpoints)
	if err != nil {
		return err
	}
	defer direct.close()
	floor, err := newStage(1, s.endpoints)
	if err != nil {
		return err
	}
	defer floor.close()
	if err := floor.translate(); err != nil {
		return err
	}
	small, err := newStage(1, s.endpoints)
	if err != nil {
		return err
	}
	defer small.close()
	alone, err := s.start(small, "one")
	if err != nil {
		return err
	}
	defer alone.stop(10 * time.Second)
	if _, err := alone.programmed(ctx, small, []int{0}, s.limit); err != nil {
		return fmt.Errorf("with 1 Service: %w", err)
	}
	if _, err := alone.rest(ctx, calm, restless); err != nil {
		return err
	}
	anywhere := func() netip.AddrPort { return endpoint(rand.IntN(s.services), rand.IntN(s.endpoints)) }
	lanes := []*lane{
		{name: "direct", stage: direct, measure: report.Direct, cost: report.DirectCPU, to: anywhere},
		{name: "direct, 1 Service", stage: direct, measure: report.DirectOne, to: func() netip.AddrPort { return endpoint(0, rand.IntN(s.endpoints)) }},
		{name: "translation", stage: floor, measure: report.Floor, cost: report.FloorCPU, to: func() netip.AddrPort { return translated(anywhere()) }},
		{name: "1 Service", stage: small, proc: alone, measure: report.One, to: func() netip.AddrPort { return vip(0) }},
		{name: "all", stage: s.stage, proc: s.proc, measure: report.Connect, cost: report.ConnectCPU, to: func() netip.AddrPort { return vip(rand.IntN(s.services)) }},
	}
	return s.contest(ctx, lanes)
}

// contest runs the rounds and records them.
func (s *session) contest(ctx context.Context, lanes []*lane) error {
	// The collector of this process must not run in one lane's turn.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for round := -1; round < s.contests; round++ { // the first is to get warm
		for turn := range lanes {
			if err := lanes[(turn+round+1)%len(lanes)].race(s.dials); err != nil {
				return err
			}
		}
		if round < 0 {
			continue
		}
		failed := 0
		for _, l := range lanes {
			s.record(l.measure, round, l.p50)
			if l.cost != "" {
				s.record(l.cost, round, l.cpu)
			}
			failed += l.failed
		}
		s.record(report.Lost, round, float64(failed))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, l := range lanes {
		s.log("connect p50 %.1f us %s", l.p50, l.name)
	}
	return nil
}

// race makes the dials of one round and keeps their median.
func (l *lane) race(dials int) error {
	targets := make([]netip.AddrPort, dials)
	for i := range targets {
		targets[i] = l.to()
	}
	took := make([]time.Duration, 0, dials)
	var last error
	l.failed = 0
	l.stage.backend.awake.Store(true)
	defer l.stage.backend.awake.Store(false)
	var before, after time.Duration
	l.stage.dial.do(func() {
		before = l.used()
		defer func() { after = l.used() }()
		for _, to := range targets {
			d, err := connect(to, time.Second)
			if err != nil {
				l.failed, last = l.failed+1, fmt.Errorf("%s: dialling %s: %w", l.name, to, err)
				if l.failed > dials/100 {
					return
				}
				continue
			}
			took = append(took, d)
		}
	})
	if l.failed > dials/100 {
		return last
	}
	l.cpu = (after - before).Seconds() * 10000 / float64(dials)
	slices.Sort(took)
	l.p50 = float64(took[len(took)/2].Nanoseconds()) / 1000
	return nil
}

// used is the processor time of the client's thread, in which the kernel does all there is
// to do on the way, and of the lane's proxy. On the dialer's thread only.
func (l *lane) used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	sum := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if l.proc != nil {
		sum += l.proc.cpu()
	}
	return sum
}
