package http

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	std "net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// dialError marks an attempt of which nothing reached the endpoint.
type dialError struct{ err error }

func (e *dialError) Error() string { return "connect: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// connectKey carries a route's connect timeout to the dialer.
type connectKey struct{}

func (s *Server) newTransport() *std.Transport {
	return &std.Transport{
		DialContext:            s.dial,
		MaxIdleConnsPerHost:    s.cfg.IdleUpstream,
		IdleConnTimeout:        60 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
		TLSNextProto:           map[string]func(string, *tls.Conn) std.RoundTripper{}, // HTTP/1 only
	}
}

func (s *Server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	timeout := s.cfg.ConnectTimeout
	if t, ok := ctx.Value(connectKey{}).(time.Duration); ok {
		timeout = t
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dial := s.cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	c, err := dial(ctx, network, address)
	if err != nil {
		return nil, &dialError{err}
	}
	return &conn{Conn: c}, nil
}

// conn puts every read and write under a deadline. Between requests a read is always
// pending (the transport watches for the endpoint closing), so begin moves its
// deadline, and so does every write: waiting for an answer starts when the request is
// out.
type conn struct {
	net.Conn
	read, send atomic.Int64 // time.Duration
}

func (c *conn) begin(read, send time.Duration) {
	c.read.Store(int64(read))
	c.send.Store(int64(send))
	c.SetReadDeadline(time.Now().Add(read)) //nolint:errcheck // a closed connection says so at the next read
}

func (c *conn) Read(p []byte) (int, error) {
	if d := c.read.Load(); d > 0 {
		c.SetReadDeadline(time.Now().Add(time.Duration(d))) //nolint:errcheck // as above
	}
	return c.Conn.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	now := time.Now()
	c.SetWriteDeadline(now.Add(time.Duration(c.send.Load()))) //nolint:errcheck // as above
	n, err := c.Conn.Write(p)
	c.SetReadDeadline(time.Now().Add(time.Duration(c.read.Load()))) //nolint:errcheck // as above
	return n, err
}

// traced times the attempt and gives its connection this route's deadlines.
func (x *exchange) traced(ctx context.Context) context.Context {
	cfg, set := x.s.cfg, x.route.Settings
	read, send := cfg.ReadTimeout, cfg.SendTimeout
	if set.ReadTimeout > 0 {
		read = set.ReadTimeout
	}
	if set.SendTimeout > 0 {
		send = set.SendTimeout
	}
	if set.ConnectTimeout > 0 {
		ctx = context.WithValue(ctx, connectKey{}, set.ConnectTimeout)
	}
	start, a := time.Now(), x.try()
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if c, ok := info.Conn.(*conn); ok {
				c.begin(read, send)
			}
			if !info.Reused {
				a.connect.Store(int64(time.Since(start)))
			}
		},
		GotFirstResponseByte: func() { a.header.Store(int64(time.Since(start))) },
	})
}

// resolver looks ExternalNames up and keeps the answer for a few seconds, the shortest
// time to live in common use.
type resolver struct {
	find func(ctx context.Context, name string) ([]netip.Addr, error)
	mu   sync.Mutex
	kept map[string]resolved
}

type resolved struct {
	addrs []netip.Addr
	until time.Time
}

const keepResolved = 5 * time.Second

func newResolver(find func(context.Context, string) ([]netip.Addr, error)) *resolver {
	if find == nil {
		find = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
		}
	}
	return &resolver{find: find, kept: make(map[string]resolved)}
}

// lookup leaves out addresses that would lead back into this machine: whoever may
// write a Service could otherwise reach what listens on the node alone.
func (r *resolver) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	now := time.Now()
	r.mu.Lock()
	k, ok := r.kept[name]
	r.mu.Unlock()
	if ok && now.Before(k.until) {
		return k.addrs, nil
	}
	found, err := r.find(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	k = resolved{until: now.Add(keepResolved)}
	for _, a := range found {
		a = a.Unmap()
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && !a.IsMulticast() {
			k.addrs = append(k.addrs, a)
		}
	}
	if len(k.addrs) == 0 {
		return nil, fmt.Errorf("%s: no usable address in %v", name, found)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, old := range r.kept {
		if now.After(old.until) {
			delete(r.kept, n)
		}
	}
	r.kept[name] = k
	return k.addrs, nil
}
