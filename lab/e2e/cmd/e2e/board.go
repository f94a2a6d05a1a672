package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// board tells the person waiting what ended, and what is being waited for.
type board struct {
	mu      sync.Mutex
	out     io.Writer
	total   int
	ended   int
	running map[Spec]time.Time // started
	quit    chan struct{}
	stopped sync.WaitGroup
}

// silence is how long the board may print nothing.
const silence = 30 * time.Second

func newBoard(out io.Writer, total int) *board {
	b := &board{out: out, total: total, running: map[Spec]time.Time{}, quit: make(chan struct{})}
	b.stopped.Go(b.remind)
	return b
}

func (b *board) start(s Spec) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[s] = time.Now()
}

func (b *board) done(r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, r.Spec)
	b.ended++
	fmt.Fprintf(b.out, "[%d/%d] %-7s %6.1f s  %s\n", b.ended, b.total, r.State, r.Seconds, r.Spec.Short())
	if r.State == Failed {
		fmt.Fprintf(b.out, "%s\n        log: %s\n", indent(firstLines(r.Message, 6)), r.Log)
	}
}

func (b *board) close() {
	close(b.quit)
	b.stopped.Wait()
}

func (b *board) remind() {
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for {
		select {
		case <-b.quit:
			return
		case <-tick.C:
			b.waiting()
		}
	}
}

func (b *board) waiting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for s, since := range b.running {
		if age := time.Since(since); age >= silence {
			lines = append(lines, fmt.Sprintf("        waiting %3.0f s for  %s\n", age.Seconds(), s.Short()))
		}
	}
	slices.Sort(lines)
	fmt.Fprint(b.out, strings.Join(lines, ""))
}

func firstLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

func indent(text string) string {
	return "        " + strings.ReplaceAll(text, "\n", "\n        ")
}
