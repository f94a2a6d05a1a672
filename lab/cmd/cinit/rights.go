package main

import (
	"errors"
	"fmt"
	"unsafe"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

// dropRights leaves the process with the user and the capabilities of the container. Root's permitted set after execve
// is the bounding set; any other user's is empty, as in other runtimes.
func dropRights(s *spec.Spec) error {
	if err := dropBounding(s.Caps); err != nil {
		return err
	}
	if err := setUser(s); err != nil {
		return err
	}
	if err := clearInheritable(); err != nil {
		return err
	}
	if s.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("prctl no_new_privs: %w", err)
		}
	}
	return nil
}

func dropBounding(keep uint64) error {
	for c := uintptr(0); c < 64; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // past the last capability this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// setUser uses raw calls: they change this thread alone, the one that will execve.
func setUser(s *spec.Spec) error {
	groups := make([]uint32, 0, len(s.Groups)+1)
	for _, g := range s.Groups {
		groups = append(groups, uint32(g))
	}
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	gid, uid := uintptr(s.GID), uintptr(s.UID)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return fmt.Errorf("setgid %d: %w", s.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return fmt.Errorf("setuid %d: %w", s.UID, e)
	}
	return nil
}

func clearInheritable() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// resetSignals gives the program default actions. execve keeps ignored signals ignored, and a lab started by nohup or as
// a shell's background job would pass on that its user wished to ignore some: a shell could then not even trap them.
func resetSignals() {
	var action [64]byte // larger than struct sigaction on every architecture; zero is SIG_DFL
	for sig := uintptr(1); sig <= 64; sig++ {
		// The kernel refuses SIGKILL and SIGSTOP.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}
