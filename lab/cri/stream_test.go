package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// buffer may be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func stream(t testing.TB, address string, opts remotecommand.StreamOptions) error {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return executor.StreamWithContext(ctx, opts)
}

func (b *box) exec(opts remotecommand.StreamOptions, argv ...string) error {
	b.t.Helper()
	resp, err := b.run.Exec(b.ctx(), &runtimeapi.ExecRequest{
		ContainerId: b.id, Cmd: argv, Tty: opts.Tty, Stdin: opts.Stdin != nil, Stdout: opts.Stdout != nil, Stderr: opts.Stderr != nil,
	})
	if err != nil {
		return err
	}
	return stream(b.t, resp.Url, opts)
}

func TestExecStreams(t *testing.T) {
	b := startNode(t, testCIDRs).pod("web").container(shell(idle))
	var out, errOut buffer
	err := b.exec(remotecommand.StreamOptions{Stdin: strings.NewReader("some words\n"), Stdout: &out, Stderr: &errOut},
		"sh", "-c", "wc -w; echo bad >&2; exit 9")
	var exit utilexec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 9 {
		t.Errorf("exit: %v", err)
	}
	if out.String() != "2\n" || errOut.String() != "bad\n" {
		t.Errorf("%q, %q", out.String(), errOut.String())
	}
	// A client whose input stays open does not hold the command.
	open, end := io.Pipe()
	defer end.Close()
	if err := b.exec(remotecommand.StreamOptions{Stdin: open, Stdout: &out}, "true"); err != nil {
		t.Error(err)
	}
	if err := b.exec(remotecommand.StreamOptions{Stdout: &out}, "absent"); err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("absent: %v", err)
	}
}

type oneSize remotecommand.TerminalSize

func (s *oneSize) Next() *remotecommand.TerminalSize {
	if s.Width == 0 {
		return nil
	}
	out := remotecommand.TerminalSize(*s)
	*s = oneSize{}
	return &out
}

func TestExecTerminal(t *testing.T) {
	b := startNode(t, testCIDRs).pod("web").container(shell(idle))
	var out buffer
	input := strings.NewReader("sleep 0.3; tty; stty size; ls -l /proc/self/fd/0; echo $TERM; grep CapBnd /proc/self/status; exit 4\n")
	err := b.exec(remotecommand.StreamOptions{
		Stdin: input, Stdout: &out, Tty: true, TerminalSizeQueue: &oneSize{Width: 91, Height: 33},
	}, "sh")
	var exit utilexec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 4 {
		t.Errorf("exit: %v", err)
	}
	for _, want := range []string{"/dev/pts/0\r\n33 91\r\n", "-> /dev/pts/0", "\r\nxterm\r\n", "00000000a80425fb"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}

func TestAttach(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	for _, tty := range []bool{false, true} {
		config := shell("while read line; do echo got $line; test $line = end && exit 6; done; echo eof; exit 2")
		config.Stdin, config.StdinOnce, config.Tty = true, true, tty
		b := p.container(config)
		for i, words := range []string{"one\nend\n", "one\n"} {
			if i == 1 && tty {
				continue // a terminal has no end of input
			}
			if i == 1 {
				b = p.container(config)
			}
			var out, errOut buffer
			opts := remotecommand.StreamOptions{Stdin: strings.NewReader(words), Stdout: &out, Tty: tty}
			if !tty {
				opts.Stderr = &errOut
			}
			resp, err := p.run.Attach(p.ctx(), &runtimeapi.AttachRequest{
				ContainerId: b.id, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := stream(t, resp.Url, opts); err != nil {
				t.Errorf("attach: %v", err)
			}
			want := []string{"got end", "eof"}[i]
			code := []int32{6, 2}[i]
			if st := b.ended(); st.ExitCode != code || !strings.Contains(out.String(), want) {
				t.Errorf("tty %v, input %q: exit code %d, %q", tty, words, st.ExitCode, out.String())
			}
			b.waitOutput("got one")
		}
	}
}

func TestPortForward(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	p.listener("8080")
	resp, err := p.run.PortForward(p.ctx(), &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{8080}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(resp.Url)
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dialLoopback(t.Context(), int32(ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "127.0.0.1 say hello\n") {
		t.Errorf("%q, %v", answer, err)
	}
}
