package dnsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	wire "github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// maxQuery is the largest query read over UDP, in bytes; longer ones are cut and fail.
const maxQuery = 4096

// udpBuffer is the receive buffer asked for, so that a burst is not lost; in bytes.
const udpBuffer = 1 << 20

// listener is one address, served over UDP and TCP.
type listener struct {
	servers []*wire.Server
}

func (s *Server) listen(a netip.AddrPort) (*listener, error) {
	l := &listener{}
	lc := net.ListenConfig{Control: freely}
	family := "4"
	if a.Addr().Is6() {
		family = "6"
	}
	for range s.cfg.Sockets {
		pc, err := lc.ListenPacket(context.Background(), "udp"+family, a.String())
		if err != nil {
			l.close()
			return nil, err
		}
		_ = pc.(*net.UDPConn).SetReadBuffer(udpBuffer) // a wish: the kernel caps it
		l.servers = append(l.servers, &wire.Server{PacketConn: pc, UDPSize: maxQuery})
	}
	ln, err := lc.Listen(context.Background(), "tcp"+family, a.String())
	if err != nil {
		l.close()
		return nil, err
	}
	l.servers = append(l.servers, &wire.Server{
		Listener:      newFairListener(netutil.LimitListener(ln, s.cfg.MaxTCP), max(1, s.cfg.MaxTCP/8)),
		ReadTimeout:   s.cfg.TCPIdle,
		WriteTimeout:  2 * time.Second, // a client that reads slower holds a connection for nothing
		IdleTimeout:   func() time.Duration { return s.cfg.TCPIdle },
		MaxTCPQueries: -1,
	})
	for _, srv := range l.servers {
		s.start(srv, a)
	}
	return l, nil
}

// start serves one socket and waits until it does.
func (s *Server) start(srv *wire.Server, a netip.AddrPort) {
	h := &handler{server: s, tcp: srv.Listener != nil}
	srv.Handler, srv.MsgInvalidFunc = h, func([]byte, error) { s.metrics.malformed.Add(1) }
	up := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(up) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.ActivateAndServe(); err != nil && !errors.Is(err, net.ErrClosed) {
			select {
			case s.failed <- fmt.Errorf("dns: serve %s: %w", a, err):
			default: // the first failure is enough
			}
		}
	}()
	select {
	case <-up:
	case <-done:
	}
}

// close stops every socket, letting replies on their way leave for a moment.
func (l *listener) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, srv := range l.servers {
		if err := srv.ShutdownContext(ctx); err == nil {
			continue
		}
		if srv.PacketConn != nil {
			srv.PacketConn.Close()
		}
		if srv.Listener != nil {
			srv.Listener.Close()
		}
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
