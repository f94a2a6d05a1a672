package main

import (
	"encoding/json"
	"fmt"
	"os"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

// openTerminal opens a terminal in the container's own devpts, so that tty(1) and /proc/self/fd agree inside, and hands
// its master side to the runtime. The runtime has already made this process a session leader.
func openTerminal(talk *os.File) error {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/ptmx: %w", err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("number of the terminal: %w", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	slave, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(slave)
	if err := unix.IoctlSetInt(slave, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("control %s: %w", name, err)
	}
	for fd := 0; fd < 3; fd++ {
		if err := unix.Dup3(slave, fd, 0); err != nil {
			return fmt.Errorf("dup %s: %w", name, err)
		}
	}
	return sendMaster(talk, master)
}

func sendMaster(talk *os.File, master int) error {
	line, err := json.Marshal(spec.Answer{TTY: true})
	if err != nil {
		return err
	}
	err = unix.Sendmsg(int(talk.Fd()), append(line, '\n'), unix.UnixRights(master), nil, 0)
	if err != nil {
		return fmt.Errorf("send the terminal: %w", err)
	}
	return nil
}
