package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairway/test/netlab"

	"golang.org/x/sys/unix"
)

// Every proxy gets a control group (version 2) of its own. The kernel counts there what
// it and all its helpers use, those that have ended too.
const (
	groupRoot   = "/sys/fs/cgroup"
	groupPrefix = "fairway-bench-"
)

// groups is where control groups of version 2 are mounted, alone or beside version 1.
func groups() (string, error) {
	for _, dir := range []string{groupRoot, filepath.Join(groupRoot, "unified")} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no control groups of version 2 under %s: processor time of a proxy's helpers cannot be counted", groupRoot)
}

// sweep ends what a killed run of this benchmark left behind: processes in its control
// groups, the groups, its mounts and files.
func sweep(root string) {
	for _, dir := range abandoned(filepath.Join(root, groupPrefix+"*")) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		threads, _ := filepath.Glob(filepath.Join(dir, "node-*"))
		for _, t := range threads {
			removeGroup(t, time.Second)
		}
		removeGroup(dir, 5*time.Second)
	}
	for _, dir := range abandoned(filepath.Join(os.TempDir(), groupPrefix+"*")) {
		mounts, _ := filepath.Glob(filepath.Join(dir, "*", "bpf"))
		for _, m := range mounts {
			_ = unix.Unmount(m, 0)
		}
		_ = os.RemoveAll(dir)
	}
}

// abandoned are the directories of a pattern whose run, named in theirs, is over.
func abandoned(pattern string) []string {
	dirs, _ := filepath.Glob(pattern)
	return slices.DeleteFunc(dirs, func(dir string) bool {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), "-")
		_, err := os.Stat("/proc/" + owner)
		return err == nil
	})
}

func removeGroup(dir string, patience time.Duration) {
	for end := time.Now().Add(patience); os.Remove(dir) != nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

// process is a running proxy.
type process struct {
	cmd     *exec.Cmd
	group   string
	log     string
	started time.Time
	done    chan struct{} // closed when it has ended
	err     error         // valid then

	mu       sync.Mutex
	peak     int64 // bytes, the most seen at once in the group
	resident int64 // bytes, seen last
}

// spawn starts a program in a namespace and in a fresh control group, after enter (nil is
// none) has run on the thread it comes from. Its output goes to a file named in errors.
func spawn(h *netlab.Host, enter func() error, root, log string, argv, env []string) (*process, error) {
	p := &process{log: log, done: make(chan struct{})}
	var err error
	if p.group, err = os.MkdirTemp(root, fmt.Sprintf("%s%d-", groupPrefix, os.Getpid())); err != nil {
		return nil, err
	}
	dir, err := os.Open(p.group)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Setpgid: true}
	err = h.Do(func() error {
		if enter != nil {
			if err := enter(); err != nil {
				return err
			}
		}
		p.started = time.Now()
		return p.cmd.Start()
	})
	if err != nil {
		removeGroup(p.group, 0)
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	go p.sample()
	return p, nil
}

// sample looks at the memory of the whole group 50 times a second.
func (p *process) sample() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			p.look()
		}
	}
}

func (p *process) look() {
	data, err := os.ReadFile(filepath.Join(p.group, "cgroup.procs"))
	if err != nil {
		return
	}
	sum, main := int64(0), strconv.Itoa(p.cmd.Process.Pid)
	program, _ := os.Readlink("/proc/" + main + "/exe")
	for _, pid := range strings.Fields(string(data)) {
		// A child that is about to become a helper shares the memory of its parent.
		if exe, err := os.Readlink("/proc/" + pid + "/exe"); pid != main && (err != nil || exe == program) {
			continue
		}
		statm, _ := os.ReadFile("/proc/" + pid + "/statm")
		if f := strings.Fields(string(statm)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	p.mu.Lock()
	p.resident, p.peak = sum, max(p.peak, sum)
	p.mu.Unlock()
}

// memory is what is resident now and was at most, in bytes, the proxy with its helpers.
// A helper that lives less than 20 ms may be missed; the proxy's own peak is the kernel's.
func (p *process) memory() (now, peak int64) {
	p.look()
	own := int64(0)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kb, _ := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			own = kb << 10
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resident, max(p.peak, own)
}

// cpu is the processor time of the group so far, in user and kernel.
func (p *process) cpu() time.Duration {
	data, _ := os.ReadFile(filepath.Join(p.group, "cpu.stat"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}

// rest waits until the group has used next to nothing for calm, and returns the
// processor time it has used in all.
func (p *process) rest(ctx context.Context, calm, limit time.Duration) (time.Duration, error) {
	deadline := time.Now().Add(limit)
	since, at := time.Now(), p.cpu()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-p.done:
			return 0, p.ended()
		case <-time.After(50 * time.Millisecond):
		}
		now := p.cpu()
		if now-at > calm/50 { // more than 2 % of a processor
			since, at = time.Now(), now
		}
		if time.Since(since) >= calm {
			return now, nil
		}
		if time.Now().After(deadline) {
			return now, fmt.Errorf("still busy after %s", limit)
		}
	}
}

// ended says why it did.
func (p *process) ended() error {
	return fmt.Errorf("%s ended by itself: %v; its last words: %s", p.cmd.Path, p.err, p.lastWords())
}

func (p *process) lastWords() string {
	data, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// stop ends it with a signal and waits. What does not end is killed; a process held in
// the kernel ends only when the kernel lets it, so there is no limit to the waiting.
func (p *process) stop(patience time.Duration) {
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
	}
	_ = os.WriteFile(filepath.Join(p.group, "cgroup.kill"), []byte("1"), 0)
	for start := time.Now(); ; {
		if os.Remove(p.group) == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
		if time.Since(start) > 15*time.Second {
			fmt.Fprintf(os.Stderr, "  waiting for the kernel to let go of %s\n", filepath.Base(p.cmd.Path))
			start = time.Now()
		}
	}
	<-p.done
}
