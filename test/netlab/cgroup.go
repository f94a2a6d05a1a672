package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a cgroup2 directory that single threads of this process can be in: what a
// thread in it opens belongs to it, whatever network namespace it is in.
type Cgroup struct{ Dir string }

// NewCgroup makes one below the process's own cgroup. Close removes it.
func NewCgroup() (*Cgroup, error) {
	own, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(own, "fairway-test-")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.type"), []byte("threaded"), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup: %w", err), os.Remove(dir))
	}
	return &Cgroup{Dir: dir}, nil
}

// Close removes the directory. Threads that were in it have ended, but the kernel may
// take a moment to see them off.
func (c *Cgroup) Close() error {
	err := os.Remove(c.Dir)
	for range 100 {
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(20 * time.Millisecond)
		err = os.Remove(c.Dir)
	}
	return err
}

// enter moves the current thread.
func (c *Cgroup) enter() error {
	return os.WriteFile(filepath.Join(c.Dir, "cgroup.threads"), []byte(strconv.Itoa(unix.Gettid())), 0)
}

// ownCgroup is the directory of this process in the cgroup2 hierarchy.
func ownCgroup() (string, error) {
	path, err := fieldOf("/proc/self/cgroup", func(line string) (string, bool) { return strings.CutPrefix(line, "0::") })
	if err != nil {
		return "", err
	}
	mount, err := fieldOf("/proc/self/mountinfo", func(line string) (string, bool) {
		mount, fs, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || !strings.HasPrefix(fs, "cgroup2 ") || len(fields) < 5 {
			return "", false
		}
		return fields[4], true
	})
	return filepath.Join(mount, path), err
}

func fieldOf(file string, find func(line string) (string, bool)) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := find(lines.Text()); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("cgroup: %s tells of no cgroup2", file)
}
