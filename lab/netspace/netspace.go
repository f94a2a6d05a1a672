// Package netspace makes and enters network namespaces. In come open namespace
// files and functions or commands to run inside them; out go new namespaces
// and running processes. It never gives a namespace a name in the file system:
// a namespace lives as long as a process or an open file holds it, so nothing
// is left to clean up when all of them are gone.
package netspace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// New makes an empty network namespace with its loopback down and returns the
// open file that keeps it alive.
func New() (*os.File, error) {
	var file *os.File
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		file = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	return file, nil
}

// Do runs fn on a thread inside ns and waits for it. Sockets and netlink
// handles that fn opens stay in ns; goroutines it starts do not.
func Do(ns *os.File, fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
		}
		return fn()
	})
}

// Start starts cmd with ns as its network namespace. More namespaces can be
// asked for in cmd.SysProcAttr.Cloneflags.
func Start(ns *os.File, cmd *exec.Cmd) error {
	return Do(ns, cmd.Start)
}

// onThread runs fn on a thread of its own that dies with it: an altered thread
// must never be handed back to the scheduler.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

// SetSysctl writes value to net/<name> below /proc/sys, in the network
// namespace of the calling thread. A kernel without that switch is not an
// error.
func SetSysctl(name, value string) error {
	err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("sysctl net/%s: %w", name, err)
	}
	return nil
}
