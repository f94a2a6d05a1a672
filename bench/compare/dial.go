package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"fairway/test/netlab"

	"golang.org/x/sys/unix"
)

// dialer makes connections from one host on one thread, with the kernel's own calls: the
// time of a connect must not hold a scheduler's.
type dialer struct {
	work chan func()
}

func newDialer(h *netlab.Host) (*dialer, error) {
	d := &dialer{work: make(chan func())}
	ready := make(chan error, 1)
	go func() {
		err := h.Do(func() error {
			ready <- nil
			for f := range d.work {
				f()
			}
			return nil
		})
		if err != nil {
			ready <- err
		}
	}()
	return d, <-ready
}

func (d *dialer) close() { close(d.work) }

// do runs f on the thread. It must not leave it.
func (d *dialer) do(f func()) {
	done := make(chan struct{})
	d.work <- func() { f(); close(done) }
	<-done
}

// connect opens a TCP connection and resets it; it tells how long connect(2) took. On
// the dialer's thread only.
func connect(to netip.AddrPort, timeout time.Duration) (time.Duration, error) {
	for {
		took, err := connectOnce(to, timeout)
		if !errors.Is(err, unix.EINTR) { // the runtime's own signals
			return took, err
		}
	}
}

func connectOnce(to netip.AddrPort, timeout time.Duration) (time.Duration, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(timeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, err
	}
	sa := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	start := time.Now()
	err = unix.Connect(fd, sa)
	return time.Since(start), err
}

// backend is the server behind every endpoint. It takes connections and drops them, and
// can wait for one address to be reached.
type backend struct {
	fd      int
	done    chan struct{}
	awaited atomic.Pointer[sighting]
	// awake keeps the server from sleeping while it has nothing to take: to wake a
	// processor that rests costs the client more than its connect, and is due the more
	// often the slower the way is.
	awake atomic.Bool
}

type sighting struct {
	addr [4]byte
	seen chan time.Time
}

func serve(h *netlab.Host) (*backend, error) {
	b := &backend{done: make(chan struct{})}
	err := h.Do(func() (err error) {
		// On a busy machine the server's thread may have to wait for a while.
		if err := os.WriteFile("/proc/sys/net/core/somaxconn", []byte("65535"), 0); err != nil {
			return err
		}
		if b.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		if err = unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		if err = unix.Bind(b.fd, &unix.SockaddrInet4{Port: targetPort}); err != nil {
			return err
		}
		return unix.Listen(b.fd, 65535)
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	go b.accept()
	return b, nil
}

func (b *backend) accept() {
	runtime.LockOSThread()
	defer close(b.done)
	for {
		fd, _, err := unix.Accept4(b.fd, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) {
			b.idle()
			continue
		}
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return
		}
		if s := b.awaited.Load(); s != nil {
			b.check(fd, s)
		}
		_ = unix.Close(fd)
	}
}

// idle gives way to whoever wants to run, or sleeps until somebody connects.
func (b *backend) idle() {
	if b.awake.Load() {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		return
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, 100)
}

func (b *backend) check(fd int, s *sighting) {
	sa, err := unix.Getsockname(fd)
	if a, ok := sa.(*unix.SockaddrInet4); err == nil && ok && a.Addr == s.addr {
		b.awaited.Store(nil)
		s.seen <- time.Now()
	}
}

// await tells when the address is reached for the first time from now on.
func (b *backend) await(a netip.Addr) <-chan time.Time {
	s := &sighting{addr: a.As4(), seen: make(chan time.Time, 1)}
	b.awaited.Store(s)
	return s.seen
}

func (b *backend) close() {
	_ = unix.Shutdown(b.fd, unix.SHUT_RDWR)
	<-b.done
	_ = unix.Close(b.fd)
}
