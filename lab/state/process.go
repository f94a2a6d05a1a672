package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process names a running process for good: process numbers are used again,
// but never with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since the machine's boot, proc(5) field 22
}

// Identify reads the start time of process pid.
func Identify(pid int) (Process, error) {
	start, _, err := stat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether this very process still runs; a zombie does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, status, err := stat(p.PID)
	return err == nil && start == p.Start && status != 'Z' && status != 'X'
}

// Kill sends SIGKILL if the process is still this one.
func (p Process) Kill() error {
	if !p.Alive() {
		return nil
	}
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return nil
}

// WaitGone waits until the process is gone, at most limit.
func (p Process) WaitGone(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for p.Alive() {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d still runs after %s", p.PID, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// stat reads start time and state from /proc/PID/stat. The name in the second
// field may hold anything, so fields count from its closing parenthesis.
func stat(pid int) (start uint64, status byte, err error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, err
	}
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return 0, 0, errors.New("unreadable stat")
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 20 {
		return 0, 0, errors.New("short stat")
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}

// WithArguments returns every process whose first argument is first and whose
// arguments contain the run of words args.
func WithArguments(first string, args []string) []Process {
	run := "\x00" + strings.Join(args, "\x00") + "\x00"
	return find(func(dir string) bool {
		raw, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(raw), "\x00")
		return strings.HasPrefix(rest, first+"\x00") && strings.Contains(rest, run)
	})
}

// InNetworks returns every process whose network namespace has one of the
// given inode numbers.
func InNetworks(inodes map[uint64]bool) []Process {
	return find(func(dir string) bool {
		inode, err := NetworkInode(filepath.Join(dir, "ns", "net"))
		return err == nil && inodes[inode]
	})
}

// find returns the processes whose directory below /proc passes a test.
func find(test func(dir string) bool) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !test(filepath.Join("/proc", e.Name())) {
			continue
		}
		if p, err := Identify(pid); err == nil {
			found = append(found, p)
		}
	}
	return found
}

// NetworkInode returns the inode number that identifies the network namespace
// at path.
func NetworkInode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return st.Ino, nil
}
