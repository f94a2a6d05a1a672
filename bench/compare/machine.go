package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is a line on where the figures come from.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	model := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			model = strings.TrimSpace(v)
			break
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("Linux %s, %d x %s, load now %s", unix.ByteSliceToString(u.Release[:]), runtime.NumCPU(), model, firstOf(string(load)))
}

func firstOf(s string) string {
	f, _, _ := strings.Cut(s, " ")
	return f
}

// quiet waits until the machine is at rest, the kernel's own cleaning of the session
// before included, but no longer than limit.
func quiet(ctx context.Context, limit time.Duration) {
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		busy, all := ticks()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		b, a := ticks()
		if a > all && float64(b-busy)/float64(a-all) < 0.05 {
			return
		}
	}
}

// ticks are the processors' busy and total time since boot.
func ticks() (busy, all uint64) {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil || i > 8 { // guest time is counted in user time already
			continue
		}
		all += n
		if i != 4 && i != 5 { // idle, waiting for a disk
			busy += n
		}
	}
	return busy, all
}
