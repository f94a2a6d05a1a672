package dnsserver

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

const (
	// tcpWrite bounds how long a client may take to read one reply: slower ones hold a
	// connection for nothing.
	tcpWrite = 2 * time.Second
	// tcpPipeline is the number of slow questions one connection may have on their way.
	tcpPipeline = 16
)

// tcpListener serves one listening socket, each connection on a goroutine of its own.
type tcpListener struct {
	server *Server
	ln     net.Listener
	counts *counts
	mu     sync.Mutex
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

func (l *tcpListener) serve() error {
	for {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			if !passing(err) {
				return err
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		l.mu.Lock()
		l.conns[c] = true
		l.mu.Unlock()
		l.wg.Add(1)
		go l.serveConn(c)
	}
}

// passing tells errors of accept(2) that say nothing against the next.
func passing(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPERM, unix.EPROTO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (l *tcpListener) serveConn(c net.Conn) {
	t := &tcpConn{listener: l, server: l.server, conn: c, slow: make(chan struct{}, tcpPipeline)}
	defer func() {
		if p := recover(); p != nil {
			l.server.metrics.panics.Inc()
			l.server.cfg.Log.Error("dns: queries could not be answered; please report this", "panic", p, "stack", string(debug.Stack()))
		}
		t.later.Wait()
		c.Close()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
		l.wg.Done()
	}()
	t.serve()
}

// stop closes the listener and lets connections finish what they were asked until ctx
// ends.
func (l *tcpListener) stop(ctx context.Context) {
	l.ln.Close()
	l.mu.Lock()
	for c := range l.conns {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		l.mu.Lock()
		for c := range l.conns {
			c.Close()
		}
		l.mu.Unlock()
	}
}

// tcpConn is one client's connection. Queries may be sent without waiting for replies;
// those that need upstream are overtaken by others (RFC 7766 section 6.2.1.1).
type tcpConn struct {
	listener *tcpListener
	server   *Server
	conn     net.Conn
	query    dns.Query
	spin     uint32
	slow     chan struct{}
	later    sync.WaitGroup

	mu  sync.Mutex // of writes
	out []byte
}

func (t *tcpConn) serve() {
	r := bufio.NewReaderSize(t.conn, 2048)
	var msg []byte
	for {
		// One deadline for the whole message: a byte now and then does not keep it alive.
		if err := t.conn.SetReadDeadline(time.Now().Add(t.server.cfg.TCPIdle)); err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if cap(msg) < n {
			msg = make([]byte, n)
		}
		msg = msg[:n]
		if _, err := io.ReadFull(r, msg); err != nil {
			return
		}
		if !t.one(msg, wholeBuffered(r)) {
			return
		}
	}
}

// wholeBuffered tells whether the next message has come as a whole.
func wholeBuffered(r *bufio.Reader) bool {
	if r.Buffered() < 2 {
		return false
	}
	length, err := r.Peek(2)
	return err == nil && r.Buffered() >= 2+int(binary.BigEndian.Uint16(length))
}

// one answers a query; more says that another has come already, and that its reply may
// be sent together with this one. It returns false when the connection is of no use.
func (t *tcpConn) one(msg []byte, more bool) bool {
	start := time.Now()
	kind := t.query.Read(msg)
	if kind == dns.Ignored {
		t.server.metrics.malformed.Add(1)
		return false
	}
	if zone := t.server.zone.Load(); kind == dns.Plain && zone != nil {
		t.spin += 0x9E3779B1
		t.mu.Lock()
		at := len(t.out)
		t.out = append(t.out, 0, 0)
		reply, rcode, ok := zone.Pack(t.out, &t.query, t.query.Limit(true), t.spin>>8)
		if ok && rcode == dns.NXDomain && zone.AutoPaths() {
			ok = false // its search list may lead on
		}
		if ok {
			binary.BigEndian.PutUint16(reply[at:], uint16(len(reply)-at-2))
			t.out = reply
			alive := more && len(t.out) < 16<<10 || t.flush()
			t.mu.Unlock()
			t.listener.counts.plain(&t.query, rcode, len(msg), len(reply)-at-2)
			t.listener.counts.took(time.Since(start), 1)
			return alive
		}
		t.out = t.out[:at]
		alive := t.flush()
		t.mu.Unlock()
		if !alive {
			return false
		}
	}
	t.slow <- struct{}{}
	t.later.Add(1)
	go t.slowly(append([]byte(nil), msg...))
	return true
}

func (t *tcpConn) slowly(msg []byte) {
	defer func() {
		<-t.slow
		t.later.Done()
	}()
	client, _ := netip.ParseAddrPort(t.conn.RemoteAddr().String())
	if req, records := t.server.transfer(msg, client.Addr()); records != nil {
		t.listener.counts.served(req.Question[0].Qtype, wire.RcodeSuccess, false, len(msg), 0)
		if !t.stream(req, records) {
			t.conn.Close()
		}
		return
	}
	reply := t.server.answer(msg, true, client.Addr().Unmap(), t.listener.counts)
	if reply == nil {
		t.conn.Close()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = binary.BigEndian.AppendUint16(t.out, uint16(len(reply)))
	t.out = append(t.out, reply...)
	if !t.flush() {
		t.conn.Close()
	}
}

// flush sends what is gathered. The caller holds mu.
func (t *tcpConn) flush() bool {
	if len(t.out) == 0 {
		return true
	}
	err := t.conn.SetWriteDeadline(time.Now().Add(tcpWrite))
	if err == nil {
		_, err = t.conn.Write(t.out)
	}
	if t.out = t.out[:0]; cap(t.out) > 16<<10 {
		t.out = nil // a large reply must not stay for as long as the connection does
	}
	return err == nil
}
