package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// exitMark begins the line with which the guest tells the exit code.
const exitMark = "VMEXIT "

// grace is what the machine gets beyond the program's own timeout, to boot and to end.
const grace = 2 * time.Minute

// errDied is the reason when the machine was reset while the program ran.
var errDied = errors.New("the machine ended without telling an exit code")

func findQEMU() (string, error) {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return "", errors.New("qemu-system-x86_64 is not installed (Debian package qemu-system-x86)")
	}
	return path, nil
}

// timeout is that of a Go test binary, ten minutes when it has none.
func timeout(args []string) time.Duration {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "-test.timeout="); ok {
			if d, err := time.ParseDuration(v); err == nil && d > 0 {
				return d
			}
		}
	}
	return 10 * time.Minute
}

// boot runs the machine until the program in it ends. TCG with one CPU of all features is
// what works everywhere; more CPUs make it no faster.
func boot(qemu, kernel, initrd string, limit time.Duration) (int, error) {
	memory := "768"
	if m := os.Getenv("FAIRWAY_VM_MEMORY"); m != "" {
		memory = m
	}
	words := "console=ttyS0 panic=-1 tsc=reliable mitigations=off"
	if os.Getenv("FAIRWAY_VM_VERBOSE") != "1" {
		words += " quiet loglevel=0"
	}
	c := exec.Command(qemu, "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", memory, "-nodefaults", "-no-user-config",
		"-no-reboot", "-display", "none", "-serial", "stdio", "-nic", "none", "-kernel", kernel, "-initrd", initrd, "-append", words)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it goes with this program
	runtime.LockOSThread()                                           // which is told of by its thread
	defer runtime.UnlockOSThread()
	out := &console{w: os.Stdout, code: -1}
	var complaint bytes.Buffer
	c.Stdout, c.Stderr = out, &complaint
	if err := c.Start(); err != nil {
		return 0, err
	}
	late := time.AfterFunc(limit+grace, func() { _ = c.Process.Kill() })
	err := c.Wait()
	if !late.Stop() {
		return 0, fmt.Errorf("the machine was stopped after %s", limit+grace)
	}
	out.flush()
	if out.code < 0 {
		return 0, fmt.Errorf("%w (%v); FAIRWAY_VM_VERBOSE=1 shows the kernel's messages: %s", errDied, err, complaint.String())
	}
	return out.code, nil
}

// console passes the guest's lines on, as they come, and keeps the exit code back.
type console struct {
	w    io.Writer
	line []byte
	code int
}

func (c *console) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			c.line = append(c.line, rest...)
			break
		}
		c.line = append(c.line, rest[:i+1]...)
		rest = rest[i+1:]
		c.flush()
	}
	return len(b), nil
}

func (c *console) flush() {
	if v, ok := strings.CutPrefix(strings.TrimSpace(string(c.line)), exitMark); ok {
		if n, err := strconv.Atoi(v); err == nil {
			c.code = n
		}
	} else {
		_, _ = c.w.Write(c.line)
	}
	c.line = c.line[:0]
}
