package http

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	std "net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fairway/ingress"
)

// attempt is one endpoint tried, for the log.
type attempt struct {
	addr   netip.AddrPort
	status int
	bytes  int64
	total  time.Duration
	// Nanoseconds; the transport's goroutines write them, even after giving up.
	connect atomic.Int64 // 0 for a kept connection
	header  atomic.Int64
}

// forward sends the request to an endpoint, to another when that one cannot be
// reached, and passes the answer on.
func (x *exchange) forward() {
	backend := x.backend()
	if backend == nil {
		return
	}
	var tried []netip.AddrPort
	var last error
	for len(tried) < max(1, x.s.cfg.Tries) {
		e, kept, ok := x.pick(backend, tried)
		if !ok {
			break
		}
		tried = append(tried, e.Addr)
		a := &attempt{addr: e.Addr}
		x.tries = append(x.tries, a)
		start := time.Now()
		resp, err := x.roundTrip(e)
		if err == nil {
			defer func() { a.total = time.Since(start) }()
			x.respond(resp, e, kept)
			return
		}
		a.total, a.status = time.Since(start), statusOf(err)
		if last = err; !x.retriable(err) {
			break
		}
	}
	x.fail(last)
}

func (x *exchange) try() *attempt { return x.tries[len(x.tries)-1] }

// backend is the route's, with the addresses of an ExternalName filled in; nil means
// the request is answered.
func (x *exchange) backend() *ingress.Backend {
	b := x.route.Backend
	if b.ExternalName == "" {
		return b
	}
	addrs, err := x.s.resolver.lookup(x.r.Context(), b.ExternalName)
	if err != nil {
		x.s.cfg.Log.Warn("ExternalName cannot be resolved", "service", b.Service.String(), "name", b.ExternalName, "error", err)
		x.refuse(std.StatusBadGateway, "")
		return nil
	}
	out := &ingress.Backend{Name: b.Name, Target: b.Target}
	for _, a := range addrs {
		out.Endpoints = append(out.Endpoints, ingress.Endpoint{Addr: netip.AddrPortFrom(a, b.ExternalPort)})
	}
	return out
}

// pick asks for the endpoint of the client's cookie, else for the next in turn.
func (x *exchange) pick(b *ingress.Backend, tried []netip.AddrPort) (e ingress.Endpoint, kept, ok bool) {
	if a := x.route.Settings.Affinity; a != nil {
		for _, c := range x.r.CookiesNamed(a.Name) {
			if e, kept, ok = b.Pick(0, c.Value, tried); kept {
				return e, kept, ok
			}
		}
	}
	return b.Pick(x.s.turn(b.Name), "", tried)
}

// turn counts requests per backend across Tables, from a random start so that
// replicas do not all begin with the same endpoint.
func (s *Server) turn(name string) uint64 {
	v, ok := s.turns.Load(name)
	if !ok {
		n := new(atomic.Uint64)
		n.Store(rand.Uint64N(1 << 32))
		v, _ = s.turns.LoadOrStore(name, n)
	}
	return v.(*atomic.Uint64).Add(1)
}

func (s *Server) forgetTurns(t *ingress.Table) {
	live := make(map[string]bool)
	t.Routes(func(r *ingress.Route) { live[r.Backend.Name] = true })
	s.turns.Range(func(k, _ any) bool {
		if !live[k.(string)] {
			s.turns.Delete(k)
		}
		return true
	})
}

func (x *exchange) roundTrip(e ingress.Endpoint) (*std.Response, error) {
	upgrade := upgradeOf(x.r)
	path, err := url.PathUnescape(x.path.Text)
	if err != nil {
		return nil, err
	}
	out := &std.Request{
		Method: x.r.Method, Host: x.r.Host, Header: x.requestHeader(upgrade),
		URL: &url.URL{
			Scheme: "http", Host: e.Addr.String(), Path: path, RawPath: x.path.Text,
			RawQuery: x.r.URL.RawQuery, ForceQuery: x.r.URL.ForceQuery,
		},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if x.body != nil {
		out.Body, out.ContentLength, out.GetBody = x.body, x.r.ContentLength, x.body.again
	}
	return x.s.transport.RoundTrip(out.WithContext(x.traced(x.r.Context())))
}

// retriable follows nginx's "error timeout" without non_idempotent: another endpoint
// may be asked when nothing reached this one, or when asking twice does no harm.
func (x *exchange) retriable(err error) bool {
	if x.r.Context().Err() != nil || x.body != nil && x.body.touched() {
		return false
	}
	var dial *dialError
	if errors.As(err, &dial) {
		return true
	}
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}, x.r.Method)
}

// fail answers for an endpoint that did not; nil means there was none to ask.
func (x *exchange) fail(err error) {
	switch {
	case err == nil:
		x.refuse(std.StatusServiceUnavailable, "")
	case x.body != nil && x.body.tooLarge():
		x.refuse(std.StatusRequestEntityTooLarge, "")
	case x.r.Context().Err() != nil:
		x.w.status = statusClientGone
	case x.body != nil && x.body.stalled():
		x.refuse(std.StatusRequestTimeout, "")
	case x.body != nil && x.body.broken():
		x.refuse(std.StatusBadRequest, "") // the endpoint is not to blame
	default:
		x.s.cfg.Log.Info("endpoint failed", "ingress", x.route.Ingress.String(), "backend", x.route.Backend.Name, "error", err)
		x.refuse(statusOf(err), "")
	}
}

func statusOf(err error) int {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return std.StatusGatewayTimeout
	}
	return std.StatusBadGateway
}

// respond passes an answer on as it comes.
func (x *exchange) respond(resp *std.Response, e ingress.Endpoint, kept bool) {
	defer resp.Body.Close()
	x.try().status = resp.StatusCode
	h := x.w.Header()
	copyHeader(h, resp.Header)
	if a := x.route.Settings.Affinity; a != nil && !kept && e.Cookie != "" {
		h.Add("Set-Cookie", cookie(a, x.route, e.Cookie, x.peer.scheme == "https", x.start))
	}
	if resp.StatusCode == std.StatusSwitchingProtocols {
		x.upgrade(resp)
		return
	}
	for k := range resp.Trailer {
		h.Add("Trailer", k)
	}
	x.w.WriteHeader(resp.StatusCode)
	err := x.copyBody(resp)
	if err != nil {
		// The header is out: only cutting the connection tells the client that the
		// body is not whole.
		x.s.cfg.Log.Debug("answer cut short", "ingress", x.route.Ingress.String(), "endpoint", e.Addr.String(), "error", err)
		panic(std.ErrAbortHandler)
	}
	for k, v := range resp.Trailer {
		h[k] = v
	}
}

// copyBody sends every piece on at once when the length is unknown, as streams need.
func (x *exchange) copyBody(resp *std.Response) error {
	stream := resp.ContentLength < 0 || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if stream {
		if err := x.w.rc.Flush(); err != nil {
			return err
		}
	}
	buf := x.s.buffer()
	defer x.s.release(buf)
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 {
			x.try().bytes += int64(n)
			if _, werr := x.w.Write((*buf)[:n]); werr != nil {
				return werr
			}
			if stream && err == nil {
				if ferr := x.w.rc.Flush(); ferr != nil {
					return ferr
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
