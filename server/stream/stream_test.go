package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"fairway/packet"

	"golang.org/x/sys/unix"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func serverFor(t *testing.T, set Settings) *Server {
	t.Helper()
	before := runtime.NumGoroutine()
	s := New(set)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
		for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
			}
		}
	})
	return s
}

// listen puts one listener with one route in force and returns its address.
func listen(t *testing.T, s *Server, l *Listener) netip.AddrPort {
	t.Helper()
	bound, failed := s.Set(Config{[]*Listener{l}})
	for _, err := range failed {
		t.Fatal(err)
	}
	return bound[l.Name]
}

func tcpTo(r Route) *Listener {
	r.Name, r.Group = "r", "r"
	return &Listener{Name: "l", Proto: packet.TCP, Addr: netip.AddrPortFrom(loopback, 0), Routes: []*Route{&r}}
}

func dial(t *testing.T, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	for errors.Is(err, unix.ECONNRESET) { // before connect(2) was even done
		c, err = net.Dial("tcp", to.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// backend accepts connections and hands them to serve.
func backend(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c.(*net.TCPConn)) }()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// named answers with its name.
func named(t *testing.T, name string) netip.AddrPort {
	return backend(t, func(c *net.TCPConn) { fmt.Fprint(c, name) })
}

// nobody is an address that refuses.
func nobody(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func ask(t *testing.T, to netip.AddrPort) string {
	t.Helper()
	c := dial(t, to)
	defer c.Close()
	b, err := io.ReadAll(c)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

func TestHalfClose(t *testing.T) {
	s := serverFor(t, Settings{})
	echo := backend(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c) // to the client's end
		c.Write(bytes.ToUpper(b))
	})
	c := dial(t, listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{echo}})))
	fmt.Fprint(c, "hello")
	c.CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "HELLO" || err != nil {
		t.Errorf("client's half closed first: %q %v", b, err)
	}
	got := make(chan string, 1)
	early := backend(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "bye")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	c = dial(t, listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{early}})))
	if b, err := io.ReadAll(c); string(b) != "bye" || err != nil {
		t.Errorf("target's half closed first: %q %v", b, err)
	}
	fmt.Fprint(c, "still here")
	c.CloseWrite()
	if b := <-got; b != "still here" {
		t.Errorf("after the target's end it got %q", b)
	}
}

func TestReset(t *testing.T) {
	s := serverFor(t, Settings{})
	c := dial(t, listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{backend(t, func(c *net.TCPConn) { c.SetLinger(0) })}})))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the target's reset came as %v", err)
	}
	got := make(chan error, 1)
	to := backend(t, func(c *net.TCPConn) {
		_, err := io.ReadAll(c)
		got <- err
	})
	c = dial(t, listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{to}})))
	fmt.Fprint(c, "x")
	c.SetLinger(0)
	c.Close()
	if err := <-got; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client's reset came as %v", err)
	}
}

func TestNextTarget(t *testing.T) {
	s := serverFor(t, Settings{DialTimeouts: []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, time.Second}})
	good := named(t, "good")
	to := listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{nobody(t), good, deaf(t)}}))
	for range 6 {
		if got := ask(t, to); got != "good" {
			t.Fatal(got)
		}
	}
	to = listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{nobody(t)}}))
	if got := ask(t, to); !strings.Contains(got, "reset") {
		t.Errorf("without a target that answers: %q", got)
	}
	if sum := s.Counts()[0].Sum; sum.Total != 6 || sum.Failed < 4 || sum.Out != 24 {
		t.Errorf("counts %+v", sum)
	}
}

// deaf is an address that never answers: its backlog is full.
func deaf(t *testing.T) netip.AddrPort {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, _ := unix.Getsockname(fd)
	to := sender(sa)
	for range 3 {
		d := net.Dialer{Timeout: 50 * time.Millisecond}
		if c, err := d.Dial("tcp", to.String()); err == nil {
			t.Cleanup(func() { c.Close() })
		}
	}
	return to
}

// TestKeptListener: while routes change all the time nobody fails to connect, and a
// connection goes on though its target is no longer one.
func TestKeptListener(t *testing.T) {
	s := serverFor(t, Settings{})
	a, b := named(t, "a"), named(t, "b")
	echo := backend(t, func(c *net.TCPConn) { io.Copy(c, c) })
	to := listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{echo}}))
	old := dial(t, to)
	said := func() {
		fmt.Fprint(old, "x")
		if _, err := old.Read(make([]byte, 1)); err != nil {
			t.Fatal("the connection to a target that is gone:", err)
		}
	}
	said()
	l := *tcpTo(Route{Targets: []netip.AddrPort{a}})
	for i := range 50 {
		l := l
		l.Routes = []*Route{{Name: "r", Targets: [][]netip.AddrPort{{a}, {b}, {a, b}}[i%3]}}
		if now := listen(t, s, &l); now != to {
			t.Fatalf("the listener moved from %s to %s", to, now)
		}
		if got, want := ask(t, to), []string{"a", "b", "ab"}[i%3]; !strings.Contains(want, got) || got == "" {
			t.Fatalf("%q where %q", got, want)
		}
		said()
	}
	s.Prune(Config{})
	if _, err := net.Dial("tcp", to.String()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a pruned listener: %v", err)
	}
	said()
}

func TestChoose(t *testing.T) {
	s := serverFor(t, Settings{})
	l := tcpTo(Route{Targets: []netip.AddrPort{named(t, "a")}})
	l.Routes = append(l.Routes, &Route{Name: "q", Targets: []netip.AddrPort{named(t, "b")}})
	l.Choose = func(client netip.Addr) int {
		return map[string]int{"127.0.0.1": 0, "127.0.0.2": 1, "127.0.0.3": -1}[client.String()]
	}
	to := listen(t, s, l)
	for from, want := range map[string]string{"127.0.0.1": "a", "127.0.0.2": "b", "127.0.0.3": ""} {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := d.Dial("tcp", to.String())
		if want == "" && errors.Is(err, unix.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if c.Close(); string(got) != want || (err == nil) == (want == "") {
			t.Errorf("from %s: %q %v, want %q", from, got, err, want)
		}
	}
}

// TestNoCircle: a listener among the targets is not dialled.
func TestNoCircle(t *testing.T) {
	s := serverFor(t, Settings{})
	l := tcpTo(Route{})
	to := listen(t, s, l)
	l2 := *l
	l2.Routes = []*Route{{Name: "r", Targets: []netip.AddrPort{to}}}
	listen(t, s, &l2)
	dials := uint64(1)
	c, err := net.Dial("tcp", to.String())
	for ; errors.Is(err, unix.ECONNRESET); dials++ { // before connect(2) was even done
		c, err = net.Dial("tcp", to.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	if n := s.Counts()[0].Sum.Failed; n < dials || n > 4*dials {
		t.Errorf("%d tries of %d connections: one goes round", n, dials)
	}
}

func TestMostConns(t *testing.T) {
	s := serverFor(t, Settings{MaxConns: 2})
	to := listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{backend(t, func(c *net.TCPConn) { io.Copy(c, c) })}}))
	talk := func(c *net.TCPConn) error {
		fmt.Fprint(c, "x")
		_, err := c.Read(make([]byte, 1))
		return err
	}
	a, b := dial(t, to), dial(t, to)
	if err := errors.Join(talk(a), talk(b)); err != nil {
		t.Fatal(err)
	}
	if err := talk(dial(t, to)); err == nil {
		t.Error("a third connection is served")
	}
	if n, _ := s.Lost(); n < 1 {
		t.Errorf("%d lost", n)
	}
	a.Close()
	for deadline := time.Now().Add(5 * time.Second); talk(dial(t, to)) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("no room after one has gone")
		}
	}
}

// TestSlowReader: who does not read holds up who writes to it, at some megabytes.
func TestSlowReader(t *testing.T) {
	s := serverFor(t, Settings{})
	wrote := make(chan int, 1)
	to := backend(t, func(c *net.TCPConn) {
		total, chunk := 0, make([]byte, 64<<10)
		for {
			c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			n, err := c.Write(chunk)
			if total += n; err != nil || total > 1<<28 {
				wrote <- total
				return
			}
		}
	})
	dial(t, listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{to}})))
	if n := <-wrote; n > 64<<20 {
		t.Errorf("%d MB were taken from the writer", n>>20)
	}
}

// TestShutdown: it waits for connections, then cuts them.
func TestShutdown(t *testing.T) {
	s := New(Settings{})
	to := listen(t, s, tcpTo(Route{Targets: []netip.AddrPort{backend(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })}}))
	c := dial(t, to)
	fmt.Fprint(c, "x")
	for s.conns.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	s.Shutdown(ctx)
	if took := time.Since(start); took < 200*time.Millisecond || took > 3*time.Second {
		t.Errorf("took %s", took)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("what was open: %v", err)
	}
	if _, failed := s.Set(Config{[]*Listener{tcpTo(Route{})}}); !errors.Is(failed["l"], ErrClosed) {
		t.Errorf("set after shutdown: %v", failed)
	}
}

func TestPorts(t *testing.T) {
	s := serverFor(t, Settings{})
	taken := named(t, "somebody else")
	l := tcpTo(Route{Targets: []netip.AddrPort{named(t, "us")}})
	l.Addr = taken
	if _, failed := s.Set(Config{[]*Listener{l}}); !errors.Is(failed["l"], unix.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", failed)
	}
	any := *l
	any.AnyPort = true
	if got := ask(t, listen(t, s, &any)); got != "us" {
		t.Error(got)
	}
	any.Proto = packet.SCTP
	if _, failed := s.Set(Config{[]*Listener{{Name: "s", Proto: packet.SCTP}}}); failed["s"] == nil {
		t.Error("SCTP is served")
	}
}
