package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clients is the control group this process moves into for as long as it runs, so that
// its dialling threads can be told apart: eBPF mode acts on the sockets of a control
// group, and a machine has only one root of them.
type clients struct {
	dir  string
	from string // where the process was
}

func enterClients(root string) (*clients, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	c := &clients{dir: filepath.Join(root, fmt.Sprintf("%s%d-clients", groupPrefix, os.Getpid())), from: root}
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			c.from = filepath.Join(root, path)
		}
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, err
	}
	return c, join(c.dir, "cgroup.procs", os.Getpid())
}

func (c *clients) leave() {
	_ = join(c.from, "cgroup.procs", os.Getpid())
	removeGroup(c.dir, 2*time.Second)
}

func join(dir, file string, id int) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(id)), 0)
}

// room is what eBPF mode has of its own on a stage: the control group of the client's
// thread, and a place for pinned maps that lives from one process to the next.
type room struct {
	group string
	pins  string
}

// newRoom gives a stage its room. Groups of threads must all be made under one.
func newRoom(st *stage, under, dir string) (*room, error) {
	r := &room{pins: filepath.Join(dir, "bpf")}
	if err := os.MkdirAll(r.pins, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("bpf", r.pins, "bpf", 0, ""); err != nil {
		return nil, fmt.Errorf("mounting %s: %w", r.pins, err)
	}
	var err error
	if r.group, err = os.MkdirTemp(under, "node-"); err != nil {
		r.close()
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.group, "cgroup.type"), []byte("threaded"), 0); err != nil {
		r.close()
		return nil, fmt.Errorf("control group of threads: %w", err)
	}
	st.dial.do(func() { err = join(r.group, "cgroup.threads", unix.Gettid()) })
	if err != nil {
		r.close()
		return nil, fmt.Errorf("moving the client's thread: %w", err)
	}
	return r, nil
}

// enter gives the calling thread, and what it starts, a view of the machine in which the
// room's group is the node's and the room's pins are all there are.
func (r *room) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	for _, m := range []struct {
		what, at, fs string
		flags        uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{r.pins, "/sys/fs/bpf", "", unix.MS_BIND},
		{"tmpfs", "/run", "tmpfs", 0},
	} {
		if err := unix.Mount(m.what, m.at, m.fs, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	at := "/run/fairway/cgroup"
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	return unix.Mount(r.group, at, "", unix.MS_BIND, "")
}

// close takes the room down; its thread must have ended.
func (r *room) close() {
	_ = unix.Unmount(r.pins, 0)
	if r.group != "" {
		removeGroup(r.group, 2*time.Second)
	}
}
