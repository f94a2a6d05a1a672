package cluster

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress tells the person who waits what is going on, with the seconds since
// the beginning in front.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

// NewProgress starts the clock.
func NewProgress(out io.Writer) *Progress {
	return &Progress{out: out, start: time.Now()}
}

// Say prints one line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Elapsed is the time since the beginning.
func (p *Progress) Elapsed() time.Duration { return time.Since(p.start) }

const (
	pollEvery   = 50 * time.Millisecond
	remindEvery = 5 * time.Second
)

// wait polls check until it returns "", and says every few seconds what is
// still missing. The error names what was waited for and what was missing last.
func (p *Progress) wait(ctx context.Context, what string, limit time.Duration, check func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	remind := time.Now().Add(remindEvery)
	for {
		missing, err := check(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if missing == "" {
			return nil
		}
		if time.Now().After(remind) {
			p.Say("still waiting for %s: %s", what, missing)
			remind = time.Now().Add(remindEvery)
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) == context.DeadlineExceeded {
				return fmt.Errorf("waiting for %s: gave up after %s: %s", what, limit, missing)
			}
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}
