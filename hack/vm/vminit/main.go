// Vminit is the first process of the virtual machine vmexec makes: the plan in /plan
// comes in, the program /test is run, its exit code goes out on the console, and the
// machine is switched off. Called as modprobe, which the kernel does, it loads a module
// of /modules with what that needs.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func main() {
	if filepath.Base(os.Args[0]) == "modprobe" {
		if err := modprobe(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "modprobe:", err)
			os.Exit(1)
		}
		return
	}
	code := 125
	if err := start(); err != nil {
		fmt.Println("vminit:", err)
	} else if code, err = runTest(); err != nil {
		fmt.Println("vminit:", err)
	}
	fmt.Printf("\nVMEXIT %d\n", code)
	unix.Sync()
	_ = drained(os.Stdout)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // with -no-reboot the machine ends at once
}

// start makes what programs expect of a machine.
func start() error {
	if err := raw(os.Stdout); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"devpts", "/dev/pts", ""},
		{"tmpfs", "/tmp", ""}, {"tmpfs", "/run", ""}, {"cgroup2", "/sys/fs/cgroup", ""}, {"bpf", "/sys/fs/bpf", ""},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// raw takes the line's own processing off the console: what is printed arrives as it is.
func raw(f *os.File) error {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

// drained waits until the console has sent everything.
func drained(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1) }

func runTest() (int, error) {
	data, err := os.ReadFile("/plan")
	if err != nil {
		return 125, err
	}
	words := strings.Split(string(data), "\x00")
	c := exec.Command("/test")
	c.Dir, c.Stdout, c.Stderr = words[0], os.Stdout, os.Stdout
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "FAIRWAY_IN_VM=1"}
	for _, w := range words[1:] {
		if v, ok := strings.CutPrefix(w, "env:"); ok {
			c.Env = append(c.Env, v)
		}
		if v, ok := strings.CutPrefix(w, "arg:"); ok {
			c.Args = append(c.Args, v)
		}
	}
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code >= 0 {
			return code, nil
		}
		return 124, err // killed by a signal
	}
	if err != nil {
		return 125, err
	}
	return 0, nil
}
