package http

import (
	"fmt"
	"io"
	std "net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"fairway/ingress"
)

// notFound is the body of ingress-nginx's default back end.
const notFound = "default backend - 404"

// statusClientGone is nginx's own: the client left before the answer. It is logged,
// never sent.
const statusClientGone = 499

// exchange is one request and its answer.
type exchange struct {
	s     *Server
	state *state
	w     *answer
	r     *std.Request
	body  *body
	peer  peer
	start time.Time

	id    string // X-Request-ID
	host  string // normalised
	path  ingress.Path
	route *ingress.Route
	tries []*attempt
}

func (s *Server) serve(w std.ResponseWriter, r *std.Request) {
	x := &exchange{s: s, state: s.table.Load(), r: r, start: time.Now()}
	x.w = &answer{ResponseWriter: w, rc: std.NewResponseController(w), timeout: s.cfg.ClientTimeout}
	x.id = requestID(r.Header.Get("X-Request-Id"))
	x.peer = s.readPeer(r)
	defer x.end()
	x.w.Header().Set("Server", "fairway")
	if s.draining.Load() {
		x.w.Header().Set("Connection", "close") // over HTTP/2 it sends GOAWAY
	}
	if x.find() {
		x.forward()
	}
}

// find sets the route; false means the request is answered already.
func (x *exchange) find() bool {
	if x.r.Method == std.MethodConnect || x.r.Method == std.MethodTrace {
		return x.refuse(std.StatusMethodNotAllowed, "")
	}
	table := x.state.table
	var err error
	x.route, x.host, x.path, err = table.Lookup(x.r.Host, rawPath(x.r.RequestURI))
	if err != nil {
		return x.refuse(std.StatusBadRequest, "")
	}
	if t := x.r.TLS; t != nil && !x.mayUse(t.ServerName) {
		return x.refuse(std.StatusMisdirectedRequest, "")
	}
	if x.r.TLS != nil && x.s.cfg.HSTS != "" && table.Secured(x.host) {
		x.w.Header().Set("Strict-Transport-Security", x.s.cfg.HSTS)
	}
	switch {
	case x.route == nil:
		return x.refuse(std.StatusNotFound, notFound)
	case x.peer.scheme == "http" && table.RedirectsToHTTPS(x.route, x.host, x.path.Text):
		return x.redirect()
	case x.route.Refused != "" || x.route.Backend.Missing != "":
		return x.refuse(std.StatusServiceUnavailable, "")
	}
	return x.admitBody()
}

// mayUse tells whether a connection made for sni may carry requests for this host:
// only when both have one certificate (RFC 9110 section 15.5.20), so that a
// connection opened under one host's TLS policy never reaches another's routes.
func (x *exchange) mayUse(sni string) bool {
	name, ok := ingress.NormalHost(sni)
	return sni == "" || ok && (name == x.host || x.state.table.SameTLS(name, x.host))
}

// rawPath is the path of a request target as sent, in origin or absolute form
// (RFC 9112 section 3.2).
func rawPath(target string) string {
	if !strings.HasPrefix(target, "/") {
		_, rest, ok := strings.Cut(target, "://")
		if !ok {
			return target // *, which Lookup refuses
		}
		i := strings.IndexAny(rest, "/?")
		if i < 0 || rest[i] == '?' {
			return "/"
		}
		target = rest[i:]
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}

// query is the query with its question mark, as sent.
func (x *exchange) query() string {
	if x.r.URL.RawQuery == "" && !x.r.URL.ForceQuery {
		return ""
	}
	return "?" + x.r.URL.RawQuery
}

func (x *exchange) redirect() bool {
	host := x.host
	if p := x.s.cfg.HTTPSPort; p != 0 && p != 443 {
		host += ":" + strconv.Itoa(int(p))
	}
	x.w.Header().Set("Location", "https://"+host+x.path.Text+x.query())
	return x.refuse(std.StatusPermanentRedirect, "")
}

// admitBody checks the body against its limit as far as its length is known.
func (x *exchange) admitBody() bool {
	limit := x.route.Settings.BodyLimit
	if limit < 0 {
		limit = x.s.cfg.BodyLimit
	}
	if limit > 0 && x.r.ContentLength > limit {
		return x.refuse(std.StatusRequestEntityTooLarge, "")
	}
	if x.r.Body != nil && x.r.Body != std.NoBody {
		x.body = &body{src: x.r.Body, rc: x.w.rc, limit: limit, timeout: x.s.cfg.ClientTimeout}
	}
	return true
}

// refuse answers by ourselves; it always returns false, for its callers' returns.
func (x *exchange) refuse(status int, text string) bool {
	if text == "" {
		text = fmt.Sprintf("%d %s\n", status, std.StatusText(status))
	}
	h := x.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	x.w.WriteHeader(status)
	if x.r.Method != std.MethodHead {
		io.WriteString(x.w, text) //nolint:errcheck // the client is gone: nothing left to do
	}
	return false
}

// end writes the log line and the metrics.
func (x *exchange) end() {
	if x.body != nil {
		x.body.finish()
	}
	x.w.finish()
	if x.w.status == 0 {
		x.w.status = statusClientGone
		if x.r.Context().Err() == nil {
			x.w.status = std.StatusOK // net/http answers 200 to a handler that writes nothing
		}
	}
	took := time.Since(x.start)
	x.s.metrics.observe(x, took)
	x.s.log.write(x, took)
}

// answer is the response writer; every write is under a deadline of its own.
type answer struct {
	std.ResponseWriter
	rc      *std.ResponseController
	timeout time.Duration
	status  int
	bytes   int64
}

func (a *answer) WriteHeader(status int) {
	if status >= 200 || status == std.StatusSwitchingProtocols {
		a.status = status
	}
	a.rc.SetWriteDeadline(time.Now().Add(a.timeout)) //nolint:errcheck // all our writers can
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.rc.SetWriteDeadline(time.Now().Add(a.timeout)) //nolint:errcheck // all our writers can
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// finish takes the deadline away, which net/http would carry over to the next request
// of the connection.
func (a *answer) finish() {
	if a.status != std.StatusSwitchingProtocols {
		a.rc.SetWriteDeadline(time.Time{}) //nolint:errcheck // all our writers can
	}
}

// peer is who sent the request and by which way, as far as it can be believed.
type peer struct {
	addr    netip.Addr // of the connection
	client  netip.Addr // of the first hop that is not trusted
	chain   string     // X-Forwarded-For to send on
	trusted bool
	scheme  string
	port    string
	host    string // X-Forwarded-Host to send on
}
