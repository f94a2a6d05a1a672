package cri

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execute starts one more process in a running container, with the container's user, rights and environment.
func (s *server) execute(c *container, argv []string, tty bool, in, out, err *os.File) (*process, error) {
	first, runErr := c.handle()
	if runErr != nil {
		return nil, runErr
	}
	defer first.Close()
	sp, specErr := c.program(s)
	if specErr != nil {
		return nil, specErr
	}
	sp.Mode, sp.Argv, sp.TTY = spec.Exec, argv, tty
	sp.Join = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	if tty {
		sp.Env = append(sp.Env, "TERM=xterm")
	}
	return s.start(launch{spec: sp, join: first, pidNS: first, stdin: in, stdout: out, stderr: err})
}

// outputLimit is how much of each stream an ExecSync returns, in bytes.
const outputLimit = 16 << 20

func (s *server) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if len(req.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no command")
	}
	var out, errOut limited
	outs, err := openOutputs(&out, &errOut)
	if err != nil {
		return nil, err
	}
	proc, err := s.execute(c, req.GetCmd(), false, nil, outs.files[0], outs.files[1])
	outs.closeChild()
	if err != nil {
		outs.finish(0)
		return nil, fmt.Errorf("container %s: exec: %w", c.name(), err)
	}
	defer proc.close()
	if timeout := time.Duration(req.GetTimeout()) * time.Second; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		proc.killGroup()
		<-proc.done
		outs.finish(0)
		return nil, status.Errorf(codes.DeadlineExceeded, "container %s: exec %q timed out", c.name(), req.GetCmd())
	}
	outs.finish(time.Second)
	return &runtimeapi.ExecSyncResponse{
		Stdout: out.take(), Stderr: errOut.take(), ExitCode: int32(proc.exit()),
	}, nil
}

// limited keeps the first bytes that are written to it and drops the rest.
type limited struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p[:min(len(p), outputLimit-l.buf.Len())])
	return len(p), nil
}

func (l *limited) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf.Bytes())
}

// outputs copies what a process writes to stdout and stderr.
type outputs struct {
	ends  []*os.File // ours
	files [2]*os.File
	group sync.WaitGroup
}

// openOutputs makes a pipe per writer; a nil writer gets none.
func openOutputs(out, err io.Writer) (*outputs, error) {
	o := &outputs{}
	for i, w := range []io.Writer{out, err} {
		if w == nil {
			continue
		}
		r, child, pipeErr := os.Pipe()
		if pipeErr != nil {
			o.closeChild()
			o.finish(0)
			return nil, pipeErr
		}
		o.ends, o.files[i] = append(o.ends, r), child
		o.group.Add(1)
		go func() {
			defer o.group.Done()
			_, _ = io.Copy(w, r) // a client that left ends the copy, not the process
		}()
	}
	return o, nil
}

func (o *outputs) closeChild() { closeFiles(o.files[0], o.files[1]) }

// finish waits for the last output, but no longer than patience: a child left in the background may hold it open.
func (o *outputs) finish(patience time.Duration) {
	drained := make(chan struct{})
	go func() {
		o.group.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(patience):
	}
	closeFiles(o.ends...)
}
