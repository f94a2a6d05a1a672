package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

// process is one process that cinit became, and the way to wait for it.
type process struct {
	cmd    *exec.Cmd
	pidfd  *os.File
	master *os.File // the terminal's master side, or nil
	done   chan struct{}

	mu   sync.Mutex
	code int // valid after done
}

// launch is how a process is started.
type launch struct {
	spec   spec.Spec
	flags  uintptr  // namespaces made for it
	join   *os.File // pidfd of the process whose namespaces spec.Join takes
	pidNS  *os.File // pidfd of a process whose process namespace it is born into, or nil
	stdin  *os.File // nil is /dev/null; all three are not used with a terminal
	stdout *os.File
	stderr *os.File
}

// start runs cinit and returns once it has become what it should be. The caller keeps its files.
func (s *server) start(l launch) (*process, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	cmd := exec.Command(s.cfg.Cinit)
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.ExtraFiles = []*os.File{theirs, l.join}
	// A nil *os.File in an io.Reader is not a nil io.Reader.
	if l.stdin != nil {
		cmd.Stdin = l.stdin
	}
	if l.stdout != nil {
		cmd.Stdout = l.stdout
	}
	if l.stderr != nil {
		cmd.Stderr = l.stderr
	}
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: l.flags, PidFD: &pidfd}
	err = forkIn(l.pidNS, cmd)
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start cinit: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{}), pidfd: os.NewFile(uintptr(pidfd), "pidfd")}
	go p.wait()
	if err := p.talk(ours, l.spec); err != nil {
		p.kill(unix.SIGKILL)
		<-p.done
		p.close()
		return nil, err
	}
	return p, nil
}

// forkIn starts cmd as a child in the process namespace of pidNS. The thread that forks is bent for good, so it dies
// with its goroutine.
func forkIn(pidNS *os.File, cmd *exec.Cmd) error {
	if pidNS == nil {
		return cmd.Start()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(pidNS.Fd()), unix.CLONE_NEWPID)
		if err == nil {
			err = cmd.Start()
		}
		result <- err
	}()
	return <-result
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	left, right := os.NewFile(uintptr(fds[0]), "talk"), os.NewFile(uintptr(fds[1]), "talk")
	conn, err := net.FileConn(left)
	left.Close()
	if err != nil {
		right.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return conn.(*net.UnixConn), right, nil
}

// talk tells cinit its spec and reads its answers until it has executed the program, which closes the socket.
func (p *process) talk(conn *net.UnixConn, sp spec.Spec) error {
	text, err := json.Marshal(sp)
	if err != nil {
		return err
	}
	if _, err := conn.Write(text); err != nil {
		return fmt.Errorf("tell cinit: %w", err)
	}
	if err := conn.CloseWrite(); err != nil {
		return fmt.Errorf("tell cinit: %w", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	lines, err := p.listen(conn)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(lines))
	ready := sp.Mode != spec.Sandbox
	for {
		var a spec.Answer
		if err := decoder.Decode(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("answer of cinit: %w", err)
		}
		if a.Error != "" {
			return errors.New(a.Error)
		}
		ready = ready || a.Ready
	}
	if !ready || (sp.TTY && p.master == nil) {
		return errors.New("cinit ended before it was done")
	}
	return nil
}

func (p *process) listen(conn *net.UnixConn) (string, error) {
	var lines strings.Builder
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	for {
		n, m, _, _, err := conn.ReadMsgUnix(buf, oob)
		n, m = max(n, 0), max(m, 0) // either is negative after a failed call
		lines.Write(buf[:n])
		if m > 0 {
			if err := p.takeMaster(oob[:m]); err != nil {
				return "", err
			}
		}
		if errors.Is(err, io.EOF) || (n == 0 && m == 0 && err == nil) {
			return lines.String(), nil
		}
		if err != nil {
			return "", fmt.Errorf("hear from cinit: %w", err)
		}
	}
}

func (p *process) takeMaster(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("terminal from cinit: %d messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return fmt.Errorf("terminal from cinit: %d files, %w", len(fds), err)
	}
	unix.CloseOnExec(fds[0])
	// Non-blocking, so that a read ends when the file is closed.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return fmt.Errorf("terminal from cinit: %w", err)
	}
	p.master = os.NewFile(uintptr(fds[0]), "terminal")
	return nil
}

func (p *process) wait() {
	_ = p.cmd.Wait() // the state below says all
	p.mu.Lock()
	p.code = exitCode(p.cmd.ProcessState)
	p.mu.Unlock()
	close(p.done)
}

// exitCode is what a shell would report.
func exitCode(state *os.ProcessState) int {
	if st, ok := state.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return state.ExitCode()
}

func (p *process) exit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code
}

// kill signals the process itself, never one that took over its number.
func (p *process) kill(sig unix.Signal) error {
	err := unix.PidfdSendSignal(int(p.pidfd.Fd()), sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// killGroup ends the process with what it started in its session's first group.
func (p *process) killGroup() {
	select {
	case <-p.done:
	default:
		// The leader is not reaped yet, so its number is still its own.
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
}

// handle is a second pidfd, so that one who starts something beside this process is not surprised by its end: a closed
// file's number may be used anew. The caller holds the lock under which close is called.
func (p *process) handle() (*os.File, error) {
	fd, err := unix.FcntlInt(p.pidfd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("process handle: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

func (p *process) close() {
	p.pidfd.Close()
	if p.master != nil {
		p.master.Close()
	}
}
