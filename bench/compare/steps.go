package main

import (
	"context"
	"fmt"
	"time"

	"fairway/bench/report"
)

// steps changes one thing at a time. Between two changes the proxy comes to rest, so
// that none waits for the pause a proxy makes after the one before.
func (s *session) steps(ctx context.Context) error {
	if _, err := s.proc.rest(ctx, calm, restless); err != nil {
		return err
	}
	for round := range s.rounds {
		i := (s.services/2 + round) % s.services
		err := s.step(ctx, round, report.Endpoint, report.EndpointCPU, func() (func() (time.Time, error), error) {
			seen := s.stage.backend.await(endpoint(i, s.endpoints).Addr())
			return func() (time.Time, error) { return s.reached(ctx, i, seen) }, s.stage.api.Put(slice(i, s.endpoints+1))
		})
		if err != nil {
			return err
		}
	}
	first := s.next
	for round := range s.rounds {
		i := first + round
		s.next = i + 1
		err := s.step(ctx, round, report.Add, report.AddCPU, func() (func() (time.Time, error), error) {
			return func() (time.Time, error) { return s.answering(ctx, i, true) }, s.stage.add(i, s.endpoints)
		})
		if err != nil {
			return err
		}
	}
	for round := range s.rounds {
		i := first + round
		err := s.step(ctx, round, report.Remove, report.RemoveCPU, func() (func() (time.Time, error), error) {
			return func() (time.Time, error) { return s.answering(ctx, i, false) }, s.stage.remove(i, s.endpoints)
		})
		if err != nil {
			return err
		}
	}
	for _, m := range []string{report.Endpoint, report.Add, report.Remove} {
		took, _ := s.rows.Median(s.mode.program, s.mode.name, s.services, m)
		s.log("%s %.1f ms", m, took*1000)
	}
	return nil
}

// step makes a change, waits until it is in force and then until the proxy is at rest.
func (s *session) step(ctx context.Context, round int, took, cpu string, change func() (func() (time.Time, error), error)) error {
	before := s.proc.cpu()
	start := time.Now()
	wait, err := change()
	if err != nil {
		return err
	}
	at, err := wait()
	if err != nil {
		return fmt.Errorf("%s: %w", took, err)
	}
	after, err := s.proc.rest(ctx, calm, restless)
	if err != nil {
		return err
	}
	s.record(took, round, at.Sub(start).Seconds())
	s.record(cpu, round, (after - before).Seconds())
	return nil
}

// reached dials Service i until a connection ends at the awaited endpoint, a dozen
// dials every two milliseconds: it is one of eleven.
func (s *session) reached(ctx context.Context, i int, seen <-chan time.Time) (time.Time, error) {
	for end := time.Now().Add(s.limit); time.Now().Before(end); {
		s.stage.dial.do(func() {
			for range s.endpoints + 2 {
				_, _ = connect(vip(i), 100*time.Millisecond)
			}
		})
		select {
		case at := <-seen:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-s.proc.done:
			return time.Time{}, s.proc.ended()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return time.Time{}, fmt.Errorf("not in force after %s", s.limit)
}

// answering waits until Service i answers, or no longer does.
func (s *session) answering(ctx context.Context, i int, want bool) (time.Time, error) {
	for end := time.Now().Add(s.limit); time.Now().Before(end); {
		var at time.Time
		var err error
		s.stage.dial.do(func() {
			at = time.Now()
			_, err = connect(vip(i), 5*time.Millisecond)
		})
		if (err == nil) == want {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-s.proc.done:
			return time.Time{}, s.proc.ended()
		case <-time.After(time.Millisecond):
		}
	}
	return time.Time{}, fmt.Errorf("not in force after %s", s.limit)
}
