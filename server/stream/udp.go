package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// biggest is the largest datagram there is.
const biggest = 1 << 16

// udpListener is a socket clients send to.
type udpListener struct {
	s    *Server
	l    *listener
	conn *net.UDPConn
	// wild says the socket has no address of its own: replies must say which was asked.
	wild bool
}

func (s *Server) openUDP(l *listener, at netip.AddrPort) error {
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(s.ctx, network("udp", at.Addr()), at.String())
	if err != nil {
		return err
	}
	u := &udpListener{s: s, l: l, conn: pc.(*net.UDPConn), wild: at.Addr().IsUnspecified()}
	if u.wild {
		if err := u.wantAddress(at.Addr().Is6()); err != nil {
			_ = pc.Close()
			return err
		}
	}
	l.bound = u.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	l.close = func() {
		_ = u.conn.Close()
		s.sessions.end(func(x *session) bool { return x.from == u })
	}
	l.retarget = func(d *door) {
		s.sessions.retire(func(x *session) bool { return x.from == u && !d.has(x.target) })
	}
	s.work.Go(u.serve)
	return nil
}

func (d *door) has(t *target) bool {
	for _, l := range d.lives {
		if l.has(t) {
			return true
		}
	}
	return false
}

// wantAddress has the kernel tell which address each datagram was sent to.
func (u *udpListener) wantAddress(v6 bool) error {
	if v6 {
		return ipv6.NewPacketConn(u.conn).SetControlMessage(ipv6.FlagDst, true)
	}
	return ipv4.NewPacketConn(u.conn).SetControlMessage(ipv4.FlagDst, true)
}

func (u *udpListener) serve() {
	rc, err := u.conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		err := u.s.receive(rc, u.datagram)
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// datagram passes one of a client's on. Nothing in it blocks.
func (u *udpListener) datagram(b []byte, from netip.AddrPort, oob []byte) {
	key := sessionKey{from: u, client: from}
	if u.wild {
		key.asked = askedAddr(oob, u.l.bound.Addr().Is6())
	}
	x := u.s.sessions.find(key)
	if x != nil && x.send(b) {
		return
	}
	if x == nil {
		x = u.begin(key, nil)
	} else { // it told that it does not listen
		x.fail()
		u.s.sessions.drop(x)
		x = u.begin(key, x.target)
	}
	if x != nil {
		x.send(b)
	}
}

func (x *session) send(b []byte) bool {
	x.last.Store(time.Now().UnixNano())
	n, err := x.up.Write(b)
	x.in(int64(n))
	return err == nil
}

func askedAddr(oob []byte, v6 bool) netip.Addr {
	var dst net.IP
	if v6 {
		var m ipv6.ControlMessage
		_ = m.Parse(oob)
		dst = m.Dst
	} else {
		var m ipv4.ControlMessage
		_ = m.Parse(oob)
		dst = m.Dst
	}
	a, _ := netip.AddrFromSlice(dst)
	return a.Unmap()
}

// begin opens a session for a client, with another target than not if there is one; nil
// when it may go nowhere.
func (u *udpListener) begin(key sessionKey, not *target) *session {
	client := key.client.Addr().Unmap().WithZone("")
	tried := []*target{not}
	for range u.s.set.DialTimeouts {
		route := u.l.door.Load().route(client)
		if route == nil {
			return nil
		}
		t := route.pick(client, tried)
		if t == nil && not != nil { // it is the only one: perhaps it listens by now
			t = route.pick(client, nil)
		}
		if t == nil {
			return nil
		}
		up, err := u.s.connectUDP(t.addr)
		if err != nil {
			flow{route, t}.fail()
			tried = append(tried, t)
			continue
		}
		if x := (&session{sessionKey: key, up: up, flow: flow{route, t}}); u.add(x) {
			return x
		}
	}
	return nil
}

// add starts a session, unless its target is gone by now.
func (u *udpListener) add(x *session) bool {
	x.last.Store(time.Now().UnixNano())
	u.s.sessions.add(x, u.s.set.MaxSessions)
	// Who changes the door looks at the sessions after: one of the two sees the other.
	if !u.l.door.Load().has(x.target) {
		u.s.sessions.drop(x)
		return false
	}
	x.begin()
	u.s.work.Go(x.replies)
	return true
}

func (s *Server) connectUDP(to netip.AddrPort) (*net.UDPConn, error) {
	if _, own := s.own.Load(to); own {
		return nil, fmt.Errorf("%s: %w", to, errOwn)
	}
	var d net.Dialer
	var c net.Conn
	err := s.set.Enter(func() (err error) {
		c, err = d.DialContext(context.Background(), "udp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// session is one client's exchange with one target.
type session struct {
	sessionKey
	flow
	up   *net.UDPConn
	last atomic.Int64 // nanoseconds since 1970
	// retired is set once the client's datagrams go elsewhere.
	retired atomic.Bool
}

// lastWords is how long the answer to a datagram that was under way is waited for when a
// session's target is gone.
const lastWords = time.Second

// replies takes the target's datagrams back until the session has been idle for long
// enough, is ended, or the target says it does not listen: the client's next datagram
// then begins anew, perhaps elsewhere.
func (x *session) replies() {
	s := x.from.s
	defer x.end()
	defer s.sessions.drop(x)
	rc, err := x.up.SyscallConn()
	if err != nil {
		return
	}
	oob := x.replyFrom()
	for {
		quiet := s.set.UDPIdle
		if x.retired.Load() {
			quiet = lastWords
		}
		idleAt := time.Unix(0, x.last.Load()).Add(quiet)
		if !time.Now().Before(idleAt) {
			return
		}
		_ = x.up.SetReadDeadline(idleAt)
		err := s.receive(rc, func(b []byte, _ netip.AddrPort, _ []byte) {
			if !x.retired.Load() {
				x.last.Store(time.Now().UnixNano())
			}
			n, _, _ := x.from.conn.WriteMsgUDPAddrPort(b, oob, x.client)
			x.out(int64(n))
		})
		if errors.Is(err, unix.ECONNREFUSED) {
			x.fail()
			if c := x.route.clients; c != nil {
				c.forget(x.client.Addr().Unmap(), x.target.addr)
			}
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// replyFrom is the control message that gives replies the address asked.
func (x *session) replyFrom() []byte {
	switch {
	case !x.asked.IsValid():
		return nil
	case x.asked.Is6():
		return (&ipv6.ControlMessage{Src: x.asked.AsSlice()}).Marshal()
	}
	return (&ipv4.ControlMessage{Src: x.asked.AsSlice()}).Marshal()
}

// receive waits for datagrams and uses all there are. A buffer is held only while there
// is something to read: thousands of sockets wait at any time.
func (s *Server) receive(rc syscall.RawConn, use func(b []byte, from netip.AddrPort, oob []byte)) error {
	var failed error
	err := rc.Read(func(fd uintptr) bool {
		buf := s.buffer()
		defer s.buffers.Put(buf)
		var oob [128]byte
		for got := false; ; got = true {
			n, oobn, _, from, err := unix.Recvmsg(int(fd), *buf, oob[:], unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return got
			case err != nil:
				failed = err
				return true
			}
			use((*buf)[:n], sender(from), oob[:oobn])
		}
	})
	if err != nil {
		return err
	}
	return failed
}

func (s *Server) buffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, biggest)
	return &b
}

func sender(from unix.Sockaddr) netip.AddrPort {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 {
			ip = ip.WithZone(strconv.Itoa(int(a.ZoneId)))
		}
		return netip.AddrPortFrom(ip, uint16(a.Port))
	}
	return netip.AddrPort{}
}
