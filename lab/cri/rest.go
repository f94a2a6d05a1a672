package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// mountView names the mount namespace of a process, "" when the process has ended. Every container has one of its own.
func mountView(pid int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return ""
	}
	return name
}

// killRest ends what a container with a shared process namespace leaves behind: the processes that see its files. With
// a process namespace of its own the kernel does that. It looks again until none is left, for they may fork meanwhile.
func killRest(view string) {
	for found := view != ""; found; time.Sleep(time.Millisecond) {
		found = false
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return
		}
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			// A process that has ended but is not reaped has no namespace any more.
			if err == nil && mountView(pid) == view {
				found = true
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}
