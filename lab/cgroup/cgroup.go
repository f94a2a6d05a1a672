// Package cgroup keeps the processes of each of the lab's nodes in a cgroup of their own,
// so that what a node's service proxy does to the sockets of its machine touches no other
// node's and not this machine's. Names of cgroups come in, directories and processes
// moved go out. It sets no limits.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNone says that this machine has no cgroup2 hierarchy.
var ErrNone = errors.New("no file system of type cgroup2 is mounted")

// Name is the cgroup of a lab's node.
func Name(lab, node string) string { return "fairway-lab." + lab + "." + node }

// mountPoint is where the hierarchy is.
func mountPoint() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		mount, fs, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if ok && strings.HasPrefix(fs, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", ErrNone
}

// Join makes a cgroup, moves the calling process into it, and with it all that it starts
// later, and returns its directory.
func Join(name string) (string, error) {
	root, err := mountPoint()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return "", fmt.Errorf("cgroup: %w", err)
	}
	return dir, nil
}

// Of opens the directory of a process's cgroup, for a child to be started in.
func Of(pid int) (*os.File, error) {
	root, err := mountPoint()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return os.OpenFile(filepath.Join(root, path), unix.O_DIRECTORY|unix.O_PATH, 0)
		}
	}
	return nil, ErrNone
}

// RemoveAll removes the cgroups of a lab's nodes. Their processes are dead, but the kernel
// may take a moment to see them off.
func RemoveAll(lab string) {
	root, err := mountPoint()
	if err != nil {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(root, Name(lab, "*")))
	for _, dir := range dirs {
		for try := 0; try < 50 && errors.Is(os.Remove(dir), unix.EBUSY); try++ {
			time.Sleep(20 * time.Millisecond)
		}
	}
}
