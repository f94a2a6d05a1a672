package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runner runs specs inside a lab, one process for each, several at a time.
type runner struct {
	enter    []string // the command that enters the lab, before the one to run
	suite    string   // path of e2e.test
	flags    []string // flags of the suite that all specs share
	dir      string   // where logs and reports go
	parallel int
	limit    time.Duration // for one spec
	failFast bool
	out      io.Writer
}

// grace is what a spec that is told to stop gets to remove its namespaces.
const grace = 90 * time.Second

// run runs the specs in order and returns their results in the same order.
// When ctx ends, specs under way are interrupted (the suite then cleans up),
// and they and the rest are unfinished.
func (r *runner) run(ctx context.Context, specs []Spec) []Result {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make([]Result, len(specs))
	for i, s := range specs {
		results[i] = Result{Spec: s, State: Unfinished, Message: "the run ended before it"}
	}
	board := newBoard(r.out, len(specs))
	defer board.close()
	next := make(chan int)
	var workers sync.WaitGroup
	for range r.parallel {
		workers.Go(func() {
			for i := range next {
				board.start(specs[i])
				results[i] = r.one(ctx, i, specs[i])
				board.done(results[i])
				if r.failFast && results[i].State == Failed {
					stop()
				}
			}
		})
	}
	feed(ctx, next, len(specs))
	workers.Wait()
	return results
}

// feed hands out 0..n-1 until ctx ends, then closes next.
func feed(ctx context.Context, next chan<- int, n int) {
	defer close(next)
	for i := range n {
		if ctx.Err() != nil {
			return
		}
		select {
		case next <- i:
		case <-ctx.Done():
			return
		}
	}
}

// one runs a single spec in a process of its own, so that one which hangs or
// crashes takes no other with it.
func (r *runner) one(ctx context.Context, i int, s Spec) Result {
	dir := filepath.Join(r.dir, fmt.Sprintf("%03d-%s", i+1, slug(s)))
	file := filepath.Join(dir, "e2e.log")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Result{Spec: s, State: Failed, Message: err.Error()}
	}
	log, err := os.Create(file)
	if err != nil {
		return Result{Spec: s, State: Failed, Message: err.Error()}
	}
	defer log.Close()

	limited, cancel := context.WithTimeout(ctx, r.limit+grace)
	defer cancel()
	args := slices.Concat(r.enter, []string{r.suite}, r.flags, []string{
		"--report-dir=" + dir,
		"--ginkgo.timeout=" + r.limit.String(),
		"--ginkgo.focus=" + regexp.QuoteMeta(s.Name) + "$",
	})
	cmd := exec.CommandContext(limited, args[0], args[1:]...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = grace
	// Its own group: Ctrl-C reaches this program, which then tells the suite
	// once; a second signal would make the suite skip its clean-up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := time.Now()
	exit := cmd.Run()
	report := filepath.Join(dir, "junit_01.xml")
	result := readResult(report, s, exit)
	// It lists all 3,000 specs of the suite; what it says of this one is read.
	_ = os.Remove(report)
	result.Log = file
	if ctx.Err() != nil && result.State == Failed {
		result.State, result.Message = Unfinished, "interrupted"
	}
	if result.Seconds == 0 {
		result.Seconds = time.Since(started).Seconds()
	}
	return result
}

// environment is this program's, with rarer garbage collection: most of what a
// short spec costs is the start of the suite, and that halves it.
func environment() []string {
	if os.Getenv("GOGC") != "" {
		return os.Environ()
	}
	return append(os.Environ(), "GOGC=400")
}

// slug is a file name that tells the spec.
func slug(s Spec) string {
	text := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(s.Short(), "-")
	return strings.Trim(text[:min(len(text), 60)], "-")
}
