package netspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"fairway/lab/cgroup"

	"golang.org/x/sys/unix"
)

// Exec replaces the calling process by argv inside the network namespace at
// path. It returns only on failure.
func Exec(path string, argv, env []string) error {
	runtime.LockOSThread()
	if err := enterFile(path, unix.CLONE_NEWNET); err != nil {
		return err
	}
	return replace(argv, env)
}

// Run runs argv inside all namespaces of process pid (mounts, processes, host
// name, IPC and network) and in its cgroup, with the caller's terminal, and returns its
// exit code. The working directory is kept where it exists there.
func Run(pid int, argv, env []string) (int, error) {
	runtime.LockOSThread()
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	// Opened first: once inside the other mount namespace, /proc shows other
	// process numbers.
	files := map[int]*os.File{}
	order := []int{unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWNET, unix.CLONE_NEWPID, unix.CLONE_NEWNS}
	names := map[int]string{unix.CLONE_NEWUTS: "uts", unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWNET: "net",
		unix.CLONE_NEWPID: "pid", unix.CLONE_NEWNS: "mnt"}
	for _, kind := range order {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, names[kind]))
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		files[kind] = f
	}
	group, err := cgroup.Of(pid)
	if err != nil && !errors.Is(err, cgroup.ErrNone) {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// A thread may change its mount namespace only when it shares its idea of
	// root and working directory with no other thread.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("unshare: %w", err)
	}
	for _, kind := range order {
		if err := unix.Setns(int(files[kind].Fd()), kind); err != nil {
			return 0, fmt.Errorf("process %d: enter %s namespace: %w", pid, names[kind], err)
		}
	}
	if unix.Chdir(dir) != nil {
		_ = unix.Chdir("/")
	}
	return forward(argv, env, group)
}

// forward runs argv as a child (a process namespace only takes children in)
// and passes signals sent to the caller on to it.
func forward(argv, env []string, group *os.File) (int, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if group != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	}
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			// The terminal has sent these two to the child already.
			if s != syscall.SIGINT && s != syscall.SIGQUIT {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

func enterFile(path string, kind int) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), kind); err != nil {
		return fmt.Errorf("namespace %s: %w", path, err)
	}
	return nil
}

func replace(argv, env []string) error {
	file, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if err := syscall.Exec(file, argv, env); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
