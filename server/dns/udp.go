package dnsserver

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"fairway/dns"

	"golang.org/x/sys/unix"
)

// udpSocket serves one socket on one goroutine: it reads a batch, packs the answers and
// sends them together. What cannot be packed goes to a goroutine of its own, so that
// nobody waits for an upstream server.
type udpSocket struct {
	server   *Server
	conn     *net.UDPConn
	raw      syscall.RawConn
	wildcard bool
	counts   *counts
	in, out  *batch
	query    dns.Query
	spin     uint32
	read     func(uintptr) bool // made once: a closure for each call would be garbage
	write    func(uintptr) bool
	sent     int
	slow     atomic.Int64 // replies on their way
	done     chan struct{}
}

func newUDPSocket(s *Server, conn *net.UDPConn, wildcard bool, c *counts) (*udpSocket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	u := &udpSocket{server: s, conn: conn, raw: raw, wildcard: wildcard, counts: c,
		in: newBatch(maxQuery), out: newBatch(dns.MaxUDP), done: make(chan struct{})}
	u.read = func(fd uintptr) bool { return u.in.receive(fd, u.wildcard) }
	u.write = func(fd uintptr) bool {
		u.sent = u.out.send(fd, u.sent)
		return u.sent >= u.out.n
	}
	return u, nil
}

// serve reads until the socket is closed, or told to stop by a deadline.
func (u *udpSocket) serve() {
	defer close(u.done)
	for failures := 0; failures < 1000; failures++ {
		if u.raw.Read(u.read) != nil {
			return
		}
		if u.in.n > 0 {
			failures = 0
			u.safely()
		}
	}
	u.server.fail(fmt.Errorf("dns: serve %s: reading fails again and again", u.conn.LocalAddr()))
}

// stop answers what has come already. Replies on their way from upstream may still
// leave until finish.
func (u *udpSocket) stop() {
	_ = u.conn.SetReadDeadline(time.Unix(1, 0))
	<-u.done
	for range 64 {
		more := false
		_ = u.raw.Control(func(fd uintptr) { more = u.in.receive(fd, u.wildcard) })
		if !more {
			break
		}
		u.safely()
	}
}

// finish closes the socket when no reply is on its way any more, or ctx ends.
func (u *udpSocket) finish(ctx context.Context) {
	for u.slow.Load() > 0 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	u.conn.Close()
}

// widen asks for a large receive buffer: past net.core.rmem_max where the process may
// (CAP_NET_ADMIN), else up to it.
func (u *udpSocket) widen() {
	forced := false
	_ = u.raw.Control(func(fd uintptr) {
		forced = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpBuffer) == nil
	})
	if !forced {
		_ = u.conn.SetReadBuffer(udpBuffer)
	}
}

// tellDestination has the kernel say to which address a datagram was sent.
func (u *udpSocket) tellDestination(v6 bool) error {
	var err error
	if cerr := u.raw.Control(func(fd uintptr) {
		if v6 {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}

// safely drops a batch whose answering panics: one query must not take the node's
// rules, addresses and routes down with it.
func (u *udpSocket) safely() {
	defer func() {
		if p := recover(); p != nil {
			u.server.metrics.panics.Inc()
			u.server.cfg.Log.Error("dns: queries could not be answered; please report this", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	u.answer()
}

func (u *udpSocket) answer() {
	start := time.Now()
	u.out.n = 0
	zone := u.server.zone.Load()
	now := milliseconds(start)
	for i := range u.in.n {
		u.one(zone, i, now)
	}
	if u.out.n == 0 {
		return
	}
	u.sent = 0
	_ = u.raw.Write(u.write)
	u.counts.took(time.Since(start), u.out.n)
}

// one answers the i-th datagram, or hands it on.
func (u *udpSocket) one(zone *dns.Zone, i int, now uint32) {
	msg := u.in.datagram(i)
	kind := u.query.Read(msg)
	if kind == dns.Ignored {
		u.server.metrics.malformed.Add(1)
		return
	}
	client := clientOf(&u.in.names[i])
	if !u.server.rate.allow(client, now) {
		u.server.metrics.limited.Add(1)
		return
	}
	if kind == dns.Plain && zone != nil {
		u.spin += 0x9E3779B1 // a step that visits every residue
		reply, rcode, ok := zone.Pack(u.out.reserve(), &u.query, u.query.Limit(false), u.spin>>8)
		if ok && rcode == dns.NXDomain && zone.AutoPaths() {
			ok = false // its search list may lead on
		}
		if ok {
			if len(reply) > largeReply && !u.server.large.allow(client, now) {
				u.server.metrics.limited.Add(1)
				reply = u.query.Cut(u.out.reserve())
			}
			u.counts.plain(&u.query, rcode, len(msg), len(reply))
			u.out.replyTo(u.in, i, len(reply))
			return
		}
	}
	if !u.server.slow.enter() {
		u.busy(kind, msg, i)
		return
	}
	u.slow.Add(1)
	go u.later(newLetter(u.in, i))
}

// busy refuses what would be one slow question too many.
func (u *udpSocket) busy(kind dns.Kind, msg []byte, i int) {
	u.server.metrics.dropped.Add(1)
	if kind != dns.Plain {
		return
	}
	reply := u.query.Refuse(u.out.reserve())
	u.counts.plain(&u.query, dns.Refused, len(msg), len(reply))
	u.out.replyTo(u.in, i, len(reply))
}

// letter is one datagram with all that its reply needs, outliving its batch.
type letter struct {
	msg  []byte
	name unix.RawSockaddrInet6
	len  uint32
	oob  []byte
}

func newLetter(b *batch, i int) *letter {
	h := &b.hdrs[i].hdr
	l := &letter{msg: append([]byte(nil), b.datagram(i)...), name: b.names[i], len: h.Namelen}
	if n := int(h.Controllen); h.Control != nil && n > 0 {
		l.oob = append([]byte(nil), b.oobs[i][:n]...)
	}
	return l
}

// later answers with all the time it takes.
func (u *udpSocket) later(l *letter) {
	defer func() {
		u.server.slow.leave()
		u.slow.Add(-1)
	}()
	reply := u.server.answer(l.msg, false, addrOf(&l.name), u.counts)
	if reply == nil {
		return
	}
	if len(reply) > largeReply && !u.server.large.allow(clientOf(&l.name), milliseconds(time.Now())) {
		u.server.metrics.limited.Add(1)
		var q dns.Query
		if q.Read(l.msg) != dns.Plain {
			return
		}
		reply = q.Cut(nil)
	}
	deliver(u.raw, l, reply)
}

// deliver sends one reply.
func deliver(raw syscall.RawConn, l *letter, reply []byte) {
	h := mmsghdr{}
	h.hdr.Name, h.hdr.Namelen = nameOf(&l.name), l.len
	if len(l.oob) > 0 {
		anyInterface(l.oob)
		h.hdr.Control = &l.oob[0]
		h.hdr.SetControllen(len(l.oob))
	}
	iov := unix.Iovec{Base: &reply[0]}
	iov.SetLen(len(reply))
	h.hdr.Iov = &iov
	h.hdr.SetIovlen(1)
	_ = raw.Write(func(fd uintptr) bool { return h.send(fd) != unix.EAGAIN })
}
