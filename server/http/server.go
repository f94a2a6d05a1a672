// Package http is the Ingress engine on Go's own net/http: connections and an
// ingress.Table come in, requests go out to the endpoints the Table lists, and an
// access log line and metrics for each. It takes every decision about routes,
// certificates and endpoints from the Table, which is replaced whole while requests
// run; it never reads a Kubernetes object.
package http

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	std "net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairway/ingress"
	"fairway/model"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is how the engine listens and forwards. Start from Default.
type Config struct {
	// HTTP and HTTPS are the addresses to listen on.
	HTTP, HTTPS []netip.AddrPort
	// ReusePort lets another process listen on the same addresses, as when a new
	// version starts before the old one has drained (SO_REUSEPORT).
	ReusePort bool
	// HTTPPort and HTTPSPort are the ports clients know; they go into redirects and
	// X-Forwarded-Port.
	HTTPPort, HTTPSPort uint16
	// TrustedProxies are the peers whose X-Forwarded-* fields are believed.
	TrustedProxies []netip.Prefix

	AccessLog  io.Writer             // nil for none
	Log        *slog.Logger          // nil for none
	Registerer prometheus.Registerer // nil for none

	// ConnectTimeout bounds a connection attempt; ReadTimeout and SendTimeout bound
	// the wait between two reads from, or writes to, an endpoint.
	ConnectTimeout, ReadTimeout, SendTimeout time.Duration
	// ClientTimeout bounds the header of a request, and the wait between two reads
	// or writes of a client.
	ClientTimeout time.Duration
	IdleTimeout   time.Duration // of a client's kept connection
	HeaderBytes   int           // of a request's header
	BodyLimit     int64         // bytes of a request's body; 0 is none
	Tries         int           // endpoints tried for one request
	IdleUpstream  int           // connections kept per endpoint
	// HSTS is the value of Strict-Transport-Security for hosts with a certificate of
	// their own; empty for none.
	HSTS string
	// LameDuck is how long Serve still accepts after it was told to end, so that
	// balancers notice; DrainTimeout bounds what then still runs.
	LameDuck, DrainTimeout time.Duration

	// Dial opens connections to endpoints; nil is the network's own.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolve finds the addresses of an ExternalName; nil is the system's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
}

// Default is ingress-nginx's configuration where it has one.
func Default() Config {
	return Config{
		HTTPPort: 80, HTTPSPort: 443,
		ConnectTimeout: 5 * time.Second, ReadTimeout: 60 * time.Second, SendTimeout: 60 * time.Second,
		ClientTimeout: 60 * time.Second, IdleTimeout: 75 * time.Second,
		HeaderBytes: 32 << 10, BodyLimit: 1 << 20, Tries: 3, IdleUpstream: 320,
		HSTS: "max-age=31536000; includeSubDomains", DrainTimeout: 240 * time.Second,
	}
}

// Server is the engine. SetTable may be called at any time; requests keep the Table
// they began with.
type Server struct {
	cfg       Config
	table     atomic.Pointer[state]
	transport *std.Transport
	metrics   *metrics
	log       *accessLog
	resolver  *resolver
	turns     sync.Map // backend name → *atomic.Uint64
	draining  atomic.Bool
	upgrades  upgrades

	mu          sync.Mutex
	plain       []net.Listener
	secure      []net.Listener
	certificate *tls.Certificate // the built-in default
	buffers     sync.Pool        // *[]byte
}

func (s *Server) buffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 32<<10)
	return &b
}

func (s *Server) release(b *[]byte) { s.buffers.Put(b) }

// state is a Table with what is kept per Table.
type state struct {
	table  *ingress.Table
	series sync.Map // seriesKey → *series
}

// New makes a Server that answers 404 to everything until SetTable.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, metrics: newMetrics(cfg.Registerer), log: newAccessLog(cfg.AccessLog)}
	s.resolver = newResolver(cfg.Resolve)
	s.transport = s.newTransport()
	empty, _ := ingress.Build(nil, &model.Snapshot{}, ingress.Config{})
	s.table.Store(&state{table: empty})
	return s
}

// SetTable puts a new Table in force for requests and handshakes from now on.
func (s *Server) SetTable(t *ingress.Table) {
	s.table.Store(&state{table: t})
	s.metrics.table(t)
	s.forgetTurns(t)
}

// Ready tells whether a Table was ever set.
func (s *Server) Ready() bool { return s.metrics.ready.Load() }

// Serve listens unless Listen was called, and serves until ctx ends; then it drains:
// responses ask clients to close, LameDuck passes, listeners close, running requests
// get DrainTimeout to end. The error is nil after a clean end.
func (s *Server) Serve(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	plain, secure := s.newServer(), s.newServer()
	secure.TLSConfig = s.tlsConfig()
	failed := make(chan error, len(s.plain)+len(s.secure))
	for _, l := range s.plain {
		go func() { failed <- plain.Serve(l) }()
	}
	for _, l := range s.secure {
		go func() { failed <- secure.ServeTLS(l, "", "") }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("ingress: %w", err)
	}
	s.drain(ctx, err == nil, plain, secure)
	s.reset()
	return err
}

// reset makes Serve work again after it has ended.
func (s *Server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plain, s.secure, s.certificate = nil, nil, nil
	s.draining.Store(false)
}

func (s *Server) drain(ctx context.Context, wait bool, servers ...*std.Server) {
	s.draining.Store(true)
	if wait {
		time.Sleep(s.cfg.LameDuck)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() {
			if srv.Shutdown(end) != nil {
				srv.Close()
			}
		})
	}
	wg.Go(func() { s.upgrades.drain(end) })
	wg.Wait()
	s.transport.CloseIdleConnections()
}

func (s *Server) newServer() *std.Server {
	return &std.Server{
		Handler:           std.HandlerFunc(s.serve),
		ReadHeaderTimeout: s.cfg.ClientTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.HeaderBytes,
		HTTP2:             &std.HTTP2Config{MaxConcurrentStreams: 128},
		ConnState:         s.metrics.connState,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}
