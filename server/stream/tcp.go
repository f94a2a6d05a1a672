package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"fairway/packet"

	"golang.org/x/sys/unix"
)

// filesPerConn is two sockets and a pipe for each direction.
const filesPerConn = 6

// mostConns is what the limit of open files leaves room for.
func mostConns() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 10000
	}
	files := int(min(lim.Cur, 1<<20))
	return max((files-files/8)/filesPerConn, 16)
}

// open makes the listener's socket and starts to serve it.
func (s *Server) open(l *listener) error {
	start := s.openTCP
	if l.spec.Proto == packet.UDP {
		start = s.openUDP
	} else if l.spec.Proto != packet.TCP {
		return fmt.Errorf("a stream carries no %s", l.spec.Proto)
	}
	err := s.set.Enter(func() error { return start(l, l.spec.Addr) })
	if l.spec.AnyPort && errors.Is(err, unix.EADDRINUSE) {
		return s.set.Enter(func() error { return start(l, netip.AddrPortFrom(l.spec.Addr.Addr(), 0)) })
	}
	return err
}

func (s *Server) openTCP(l *listener, at netip.AddrPort) error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	n, err := lc.Listen(s.ctx, network("tcp", at.Addr()), at.String())
	if err != nil {
		return err
	}
	tcp := n.(*net.TCPListener)
	l.bound = tcp.Addr().(*net.TCPAddr).AddrPort()
	l.close = func() { _ = tcp.Close() }
	name := l.spec.Name
	s.work.Go(func() { s.accept(l, name, tcp) })
	return nil
}

// network names a protocol of one family: without it Go opens 0.0.0.0 for both.
func network(proto string, a netip.Addr) string {
	if a.Is4() {
		return proto + "4"
	}
	return proto + "6"
}

// accept serves until the socket is closed. Out of files or memory, it waits a little.
func (s *Server) accept(l *listener, name string, tcp *net.TCPListener) {
	for {
		c, err := tcp.AcceptTCP()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		default:
			s.set.Log.Warn("accept", "listener", name, "err", err)
			if !s.sleep(50 * time.Millisecond) {
				return
			}
			continue
		}
		if s.conns.Add(1) > int64(s.set.MaxConns) {
			s.conns.Add(-1)
			s.refused.Add(1)
			reset(c)
			continue
		}
		s.work.Go(func() {
			defer s.conns.Add(-1)
			s.serve(l.door.Load(), c)
		})
	}
}

func (s *Server) sleep(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// serve takes one connection to a target and back.
func (s *Server) serve(d *door, c *net.TCPConn) {
	client := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	route := d.route(client)
	if route == nil || d.captured && !captured(c) {
		reset(c)
		return
	}
	up, f, err := s.dial(route, client)
	if err != nil {
		s.set.Log.Debug("no target answers", "route", route.route.Name, "client", client, "err", err)
		reset(c)
		return
	}
	f.begin()
	defer f.end()
	_ = Pipe(s.ctx, c, up, f.in, f.out)
}

// errNoTarget says every target was tried, or there is none.
var errNoTarget = errors.New("no target is left to try")

// dial tries one target after the other, with more patience each time. A target that
// refused is not asked again.
func (s *Server) dial(route *live, client netip.Addr) (*net.TCPConn, flow, error) {
	var tried, refused []*target
	last := errNoTarget
	for _, timeout := range s.set.DialTimeouts {
		t := route.pick(client, tried)
		if t == nil {
			tried = slices.Clone(refused)
			if t = route.pick(client, tried); t == nil {
				break
			}
		}
		c, err := s.connect(t.addr, timeout)
		if err == nil {
			return c, flow{route, t}, nil
		}
		last = err
		flow{route, t}.fail()
		tried = append(tried, t)
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			refused = append(refused, t)
		}
		if s.ctx.Err() != nil {
			break
		}
	}
	return nil, flow{}, last
}

// errOwn guards against a connection that would go round for ever.
var errOwn = errors.New("the target is a listener of this proxy")

func (s *Server) connect(to netip.AddrPort, timeout time.Duration) (*net.TCPConn, error) {
	if _, own := s.own.Load(to); own {
		return nil, fmt.Errorf("%s: %w", to, errOwn)
	}
	d := net.Dialer{FallbackDelay: -1}
	d.SetMultipathTCP(false)
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	var c net.Conn
	err := s.set.Enter(func() (err error) {
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
