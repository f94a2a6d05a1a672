package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

// sandbox holds the namespaces of a Pod. It keeps nothing of the node in sight: with a shared process namespace the
// containers can see it.
func sandbox(s *spec.Spec, talk *os.File) error {
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("set hostname %q: %w", s.Hostname, err)
		}
	}
	for name, value := range s.Sysctls {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		err := os.WriteFile(path, []byte(value), 0)
		if errors.Is(err, os.ErrNotExist) && slices.Contains(s.Quiet, name) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	if err := enterEmptyRoot(s.Root.Scratch); err != nil {
		return err
	}
	answer(talk, spec.Answer{Ready: true})
	talk.Close()
	hold()
	return nil
}

// hold is what the pause image does: stay, reap orphans, leave when asked.
func hold() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGCHLD)
	for sig := range signals {
		if sig != unix.SIGCHLD {
			return
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}
