package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"fairway/packet"

	"golang.org/x/sys/unix"
)

// Serve starts a server on addr that answers with its own address and the client's it
// saw, to a datagram with one as big. Its host must exist.
func (lab *Lab) Serve(proto packet.Protocol, addr netip.AddrPort) error {
	h := lab.Host(addr.Addr())
	if h == nil {
		return fmt.Errorf("serve %s: nobody has the address", addr)
	}
	return h.Do(func() error {
		lc := net.ListenConfig{Control: freebind}
		lc.SetMultipathTCP(false)
		if proto == packet.UDP {
			pc, err := lc.ListenPacket(context.Background(), "udp", addr.String())
			if err != nil {
				return err
			}
			lab.servers = append(lab.servers, pc)
			go serveUDP(pc)
			return nil
		}
		l, err := lc.Listen(context.Background(), "tcp", addr.String())
		if err != nil {
			return err
		}
		lab.servers = append(lab.servers, l)
		go serveTCP(l)
		return nil
	})
}

// freebind lets a source or server have an address that no interface has.
func freebind(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
	})
}

func serveUDP(pc net.PacketConn) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := pc.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			says := []byte(pc.LocalAddr().String() + " " + from.String())
			says = append(says, bytes.Repeat([]byte(" "), max(0, n-len(says)))...)
			_, _ = pc.WriteTo(says, from)
		}
	}
}

func serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(c.LocalAddr().String() + " " + c.RemoteAddr().String()))
		_ = c.Close()
	}
}

// Observation is what became of a packet. At most one of the words is true; none of
// them is silence: dropped.
type Observation struct {
	// Endpoint and Source are valid when a server answered: who it is and whom it saw.
	Endpoint netip.AddrPort
	Source   netip.Addr
	// Refused is a connection refused, NoRoute any other error of the network.
	Refused bool
	NoRoute string
}

func (o Observation) String() string {
	switch {
	case o.Endpoint.IsValid():
		return fmt.Sprintf("reached %s as %s", o.Endpoint, o.Source)
	case o.Refused:
		return "refused"
	case o.NoRoute != "":
		return o.NoRoute
	}
	return "silence"
}

// Reached tells whether a server answered.
func (o Observation) Reached() bool { return o.Endpoint.IsValid() }

// Send sends one packet (TCP: a connect) from the host that has its source, or from the
// node when it is Local, and waits for an answer no longer than timeout.
func (lab *Lab) Send(p packet.Packet, timeout time.Duration) (Observation, error) {
	return lab.send(p, 1, timeout)
}

// big is a datagram's size that comes in three fragments, there and back.
const big = 4000

func (lab *Lab) send(p packet.Packet, size int, timeout time.Duration) (Observation, error) {
	h := lab.Host(p.Src)
	if p.Local {
		h = lab.Node
	}
	if h == nil {
		return Observation{}, fmt.Errorf("send %s: nobody has the address %s", p, p.Src)
	}
	var conn net.Conn
	err := h.Do(func() (err error) {
		conn, err = dial(p, timeout)
		return err
	})
	if err != nil {
		return observeError(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if p.Proto == packet.UDP {
		if _, err := conn.Write(bytes.Repeat([]byte("?"), size)); err != nil && !errors.Is(err, unix.EPERM) {
			return observeError(err)
		}
		// EPERM tells that a rule of the sending node took the packet; whether it
		// rejected it is told by what can be read.
	}
	buf := make([]byte, max(size, 256))
	n, err := conn.Read(buf)
	if err != nil {
		return observeError(err)
	}
	if n < size {
		return Observation{}, fmt.Errorf("of a datagram of %d bytes %d came back", size, n)
	}
	return parseAnswer(string(buf[:n]))
}

func dial(p packet.Packet, timeout time.Duration) (net.Conn, error) {
	from := netip.AddrPortFrom(p.Src, 0)
	d := net.Dialer{Timeout: timeout, Control: freebind, FallbackDelay: -1}
	d.SetMultipathTCP(false)
	if p.Proto == packet.UDP {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
		return d.Dial("udp", p.Dst.String())
	}
	d.LocalAddr = net.TCPAddrFromAddrPort(from)
	return d.Dial("tcp", p.Dst.String())
}

func observeError(err error) (Observation, error) {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return Observation{Refused: true}, nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return Observation{}, nil
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EPERM):
		return Observation{NoRoute: err.Error()}, nil
	}
	return Observation{}, err
}

func parseAnswer(s string) (Observation, error) {
	var own, peer string
	if _, err := fmt.Sscan(s, &own, &peer); err != nil {
		return Observation{}, fmt.Errorf("answer %q: %w", s, err)
	}
	endpoint, err := netip.ParseAddrPort(own)
	if err != nil {
		return Observation{}, err
	}
	source, err := netip.ParseAddrPort(peer)
	return Observation{Endpoint: endpoint, Source: source.Addr().Unmap()}, err
}
