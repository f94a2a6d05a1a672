package dnsserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// maxQuery is the largest query read over UDP, in bytes; longer ones are ignored.
const maxQuery = 4096

// udpBuffer is the receive buffer asked for, so that a burst is not lost while the
// process does not run; in bytes.
const udpBuffer = 4 << 20

// listener is one address, served over UDP and TCP.
type listener struct {
	udp []*udpSocket
	tcp *tcpListener
}

func (s *Server) listen(a netip.AddrPort) (*listener, error) {
	l := &listener{}
	lc := net.ListenConfig{Control: freely}
	family := "4"
	if a.Addr().Is6() {
		family = "6"
	}
	for range s.cfg.Sockets {
		u, err := s.listenUDP(lc, "udp"+family, a)
		if err != nil {
			s.close(l)
			return nil, err
		}
		l.udp = append(l.udp, u)
		go u.serve()
	}
	ln, err := lc.Listen(context.Background(), "tcp"+family, a.String())
	if err != nil {
		s.close(l)
		return nil, err
	}
	l.tcp = &tcpListener{
		server: s, conns: map[net.Conn]bool{}, counts: s.metrics.counts(true, a.Addr().Is6()),
		ln: newFairListener(netutil.LimitListener(ln, s.cfg.MaxTCP), max(1, s.cfg.MaxTCP/8)),
	}
	go func() {
		if err := l.tcp.serve(); err != nil {
			s.fail(fmt.Errorf("dns: serve %s over TCP: %w", a, err))
		}
	}()
	return l, nil
}

func (s *Server) listenUDP(lc net.ListenConfig, network string, a netip.AddrPort) (*udpSocket, error) {
	pc, err := lc.ListenPacket(context.Background(), network, a.String())
	if err != nil {
		return nil, err
	}
	conn := pc.(*net.UDPConn)
	u, err := newUDPSocket(s, conn, a.Addr().IsUnspecified(), s.metrics.counts(false, a.Addr().Is6()))
	if err == nil {
		u.widen()
	}
	if err == nil && u.wildcard {
		err = u.tellDestination(a.Addr().Is6())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return u, nil
}

// fail ends Serve; the first failure is enough.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// close stops every socket, letting replies on their way leave for a moment.
func (s *Server) close(l *listener) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, u := range l.udp {
		u.stop()
	}
	if l.tcp != nil {
		l.tcp.stop(ctx)
		s.metrics.release(l.tcp.counts)
	}
	for _, u := range l.udp {
		u.finish(ctx)
		s.metrics.release(u.counts)
	}
}

// freely lets several processes share an address (an update hands over without a gap)
// and binds one that is not on the node (ip(7), IP_FREEBIND).
func freely(network, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		if err != nil {
			return
		}
		if network[len(network)-1] == '6' {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}
