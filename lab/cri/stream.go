package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streamer is what the streaming server calls; its methods have the names of gRPC calls, so it is a type of its own.
type streamer struct{ s *server }

// startStreams serves exec, attach and port-forward on loopback of the node; the kubelet passes clients on to it.
func (s *server) startStreams() (stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cfg := streaming.DefaultConfig
	cfg.Addr = listener.Addr().String()
	s.streams, err = streaming.NewServer(cfg, streamer{s})
	if err != nil {
		listener.Close()
		return nil, err
	}
	web := &http.Server{Handler: s.streams, ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(listener) }() // ends with Close
	return web.Close, nil
}

func (s *server) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if _, err := c.running(); err != nil {
		return nil, err
	}
	return s.streams.GetExec(req)
}

func (s *server) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if _, err := c.running(); err != nil {
		return nil, err
	}
	return s.streams.GetAttach(req)
}

func (s *server) PortForward(
	_ context.Context, req *runtimeapi.PortForwardRequest,
) (*runtimeapi.PortForwardResponse, error) {
	if _, err := s.sandbox(req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return s.streams.GetPortForward(req)
}

// Exec runs a command with the client's streams. Its exit code is the error's.
func (st streamer) Exec(
	ctx context.Context, id string, argv []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	c, err := st.s.container(id)
	if err != nil {
		return err
	}
	var proc *process
	var finish func()
	if tty {
		proc, finish, err = st.execTerminal(ctx, c, argv, in, out, resize)
	} else {
		proc, finish, err = st.execPipes(c, argv, in, out, errOut)
	}
	if err != nil {
		return fmt.Errorf("container %s: exec: %w", c.name(), err)
	}
	defer proc.close()
	select {
	case <-proc.done:
	case <-ctx.Done():
		proc.killGroup()
		<-proc.done
	}
	finish()
	if code := proc.exit(); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return nil
}

func (st streamer) execPipes(
	c *container, argv []string, in io.Reader, out, errOut io.WriteCloser,
) (*process, func(), error) {
	outs, err := openOutputs(asWriter(out), asWriter(errOut))
	if err != nil {
		return nil, nil, err
	}
	var childIn, ourIn *os.File
	if in != nil {
		if childIn, ourIn, err = os.Pipe(); err != nil {
			outs.closeChild()
			outs.finish(0)
			return nil, nil, err
		}
	}
	proc, err := st.s.execute(c, argv, false, childIn, outs.files[0], outs.files[1])
	outs.closeChild()
	closeFiles(childIn)
	if err != nil {
		closeFiles(ourIn)
		outs.finish(0)
		return nil, nil, err
	}
	if in != nil {
		// On its own: the client's input may stay open long after the command has ended.
		go func() {
			_, _ = io.Copy(ourIn, in)
			ourIn.Close()
		}()
	}
	return proc, func() { outs.finish(time.Second) }, nil
}

// asWriter keeps a nil interface nil.
func asWriter(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

func (st streamer) execTerminal(
	ctx context.Context, c *container, argv []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize,
) (*process, func(), error) {
	proc, err := st.s.execute(c, argv, true, nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	go follow(ctx, proc.master, resize)
	if in != nil {
		go func() { _, _ = io.Copy(proc.master, in) }()
	}
	drained := make(chan struct{})
	go func() {
		_, _ = io.Copy(out, proc.master)
		close(drained)
	}()
	finish := func() {
		select {
		case <-drained:
		case <-time.After(time.Second):
		}
	}
	return proc, finish, nil
}

// follow keeps the terminal as large as the client's window.
func follow(ctx context.Context, terminal *os.File, resize <-chan remotecommand.TerminalSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				return
			}
			setSize(terminal, size)
		}
	}
}

func setSize(terminal *os.File, size remotecommand.TerminalSize) {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	// The terminal may have been closed meanwhile; Control then does nothing.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}

// Attach joins a client to the container's own streams until the container or the client ends.
func (st streamer) Attach(
	ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	c, err := st.s.container(id)
	if err != nil {
		return err
	}
	if _, err := c.running(); err != nil {
		return err
	}
	flow := c.io
	if flow.tty {
		go follow(ctx, flow.in, resize)
	}
	v := &viewer{out: asWriter(out), err: asWriter(errOut)}
	flow.attach(v)
	defer flow.detach(v)
	if in != nil && flow.in != nil {
		go func() {
			_, _ = io.Copy(flow.in, in)
			if c.config.GetStdinOnce() {
				flow.closeInput()
			}
		}()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return nil
}

// PortForward joins stream to a port of the Pod's loopback.
func (st streamer) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	p, err := st.s.sandbox(id)
	if err != nil {
		return err
	}
	conn, err := p.dial(ctx, port)
	if err != nil {
		return fmt.Errorf("pod %s: %w", podName(p.config), err)
	}
	defer conn.Close()
	defer stream.Close()
	sent := make(chan struct{})
	go func() {
		_, _ = io.Copy(conn, stream)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		close(sent)
	}()
	_, err = io.Copy(stream, conn)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// dial connects from inside the Pod's network namespace.
func (p *sandbox) dial(ctx context.Context, port int32) (net.Conn, error) {
	if p.onNodeNetwork() {
		return dialLoopback(ctx, port)
	}
	handle, err := p.handle()
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	go func() {
		// A socket belongs to the namespace of the thread that makes it; this thread ends with the goroutine.
		runtime.LockOSThread()
		var r result
		if r.err = unix.Setns(int(handle.Fd()), unix.CLONE_NEWNET); r.err == nil {
			r.conn, r.err = dialLoopback(ctx, port)
		}
		results <- r
	}()
	r := <-results
	return r.conn, r.err
}

// dialLoopback uses addresses, not names: a name would be looked up and dialled on other threads.
func dialLoopback(ctx context.Context, port int32) (net.Conn, error) {
	var dialer net.Dialer
	number := strconv.Itoa(int(port))
	conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", number))
	if err == nil {
		return conn, nil
	}
	conn, err6 := dialer.DialContext(ctx, "tcp6", net.JoinHostPort("::1", number))
	if err6 == nil {
		return conn, nil
	}
	return nil, errors.Join(err, err6)
}
