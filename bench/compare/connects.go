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
	p50   float64 // microseconds, of the last round
	cpu   float64 // seconds for 10,000 dials
	// failed counts the connects of the last round that took a second or were refused.
	failed int
}

// connects dials in rounds: the same number of connections on the direct way, through
// the mode with one Service, and to random Services of the full stage, in an order that
// turns. What disturbs the machine for a while disturbs all three.
func (s *session) connects(ctx context.Context) error {
	direct, err := newStage(1, s.endpoints)
	if err != nil {
		return err
	}
	defer direct.close()
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
	lanes := []*lane{
		{name: "direct", stage: direct, to: func() netip.AddrPort { return endpoint(0, rand.IntN(s.endpoints)) }},
		{name: "1 Service", stage: small, proc: alone, to: func() netip.AddrPort { return vip(0) }},
		{name: "all", stage: s.stage, proc: s.proc, to: func() netip.AddrPort { return vip(rand.IntN(s.services)) }},
	}
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
		s.record(report.Direct, round, lanes[0].p50)
		s.record(report.One, round, lanes[1].p50)
		s.record(report.Connect, round, lanes[2].p50)
		s.record(report.Lost, round, float64(lanes[1].failed+lanes[2].failed))
		s.record(report.DirectCPU, round, lanes[0].cpu)
		s.record(report.ConnectCPU, round, lanes[2].cpu)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.log("connect p50 %.1f us direct, %.1f us with 1 Service, %.1f us with %d", lanes[0].p50, lanes[1].p50, lanes[2].p50, s.services)
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
	before := l.used()
	l.stage.dial.do(func() {
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
	l.cpu = (l.used() - before).Seconds() * 10000 / float64(dials)
	slices.Sort(took)
	l.p50 = float64(took[len(took)/2].Nanoseconds()) / 1000
	return nil
}

// used is the processor time of this process, which is client and server and what the
// kernel does for them, and of the lane's proxy.
func (l *lane) used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	sum := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if l.proc != nil {
		sum += l.proc.cpu()
	}
	return sum
}
