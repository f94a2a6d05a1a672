// Package dnsserver serves a dns.Zone over UDP and TCP and asks upstream servers for
// everything else: a Zone comes in by SetZone, queries come in by sockets, replies and
// metrics go out. It decides nothing about the cluster domain; that is dns.Answer.
package dnsserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairway/dns"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is where and how to serve. The zero value of a field has the default named.
type Config struct {
	// Addresses are listened on over UDP and TCP. One that is not on the node (yet) can
	// be given: sockets are bound freely. A reply leaves from the address asked.
	Addresses []netip.AddrPort
	// Sockets is the number of UDP sockets per address, 1 by default.
	Sockets int
	Forward dns.ForwardConfig
	// Version and Hostname answer version.bind and hostname.bind in class CHAOS;
	// empty ones are refused.
	Version, Hostname string
	// MaxTCP is the number of TCP connections per address at once, 1,000 by default.
	MaxTCP int
	// TCPIdle is how long a connection may be silent, 10 s by default.
	TCPIdle time.Duration
	// LargePerSecond is the number of UDP replies of more than 512 bytes one client gets
	// in a second, 1,000 by default; -1 is no limit. Beyond it replies are cut to nothing with
	// TC set: the client comes over TCP, and a forged source gets little.
	LargePerSecond int
	// QueriesPerSecond is the number of UDP queries of one client that are answered in a
	// second; more are dropped. 0 is no limit.
	QueriesPerSecond int
	// UpstreamTimeout is how long one upstream may take, 2 s by default.
	UpstreamTimeout time.Duration
	Registerer      prometheus.Registerer // none by default
	Log             *slog.Logger          // discards by default
}

func (c Config) withDefaults() Config {
	c.Sockets = max(c.Sockets, 1)
	if c.MaxTCP <= 0 {
		c.MaxTCP = 1000
	}
	if c.LargePerSecond == 0 {
		c.LargePerSecond = 1000
	}
	if c.TCPIdle <= 0 {
		c.TCPIdle = 10 * time.Second
	}
	if c.UpstreamTimeout <= 0 {
		c.UpstreamTimeout = 2 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server answers DNS queries. Its methods may be called from any goroutine.
type Server struct {
	cfg       Config
	zone      atomic.Pointer[dns.Zone]
	forward   *forwarder
	metrics   *metrics
	probe     string // the label by which this process knows its own loop probes
	accepting atomic.Bool
	slow      gate
	rate      *limiter // of queries
	large     *limiter // of large replies

	mu        sync.Mutex
	serving   bool
	listeners map[netip.AddrPort]*listener
	wanted    []netip.AddrPort
	failed    chan error
}

// New makes a server that does not listen yet. It answers SERVFAIL until SetZone.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, probe: rand.Text(), listeners: map[netip.AddrPort]*listener{},
		wanted: cfg.Addresses, failed: make(chan error, 1),
		rate: newLimiter(cfg.QueriesPerSecond), large: newLimiter(cfg.LargePerSecond),
	}
	s.metrics = newMetrics(cfg.Registerer, cfg.Addresses, cfg.Version)
	s.forward = newForwarder(cfg, s.probe, s.metrics, s.listensOn)
	return s
}

// SetZone replaces the zone for every query that begins after it returns.
func (s *Server) SetZone(z *dns.Zone) { s.zone.Store(z) }

// Ready tells whether queries are answered: sockets open, a zone set, not stopping.
func (s *Server) Ready() bool { return s.accepting.Load() && s.zone.Load() != nil }

// SetForward replaces the routes to upstreams; what is cached for a route that stays
// the same is kept.
func (s *Server) SetForward(f dns.ForwardConfig) { s.forward.configure(f) }

// SetAddresses changes what is listened on, at once when serving. Addresses that stay
// are not interrupted. The error joins those of addresses that cannot be bound; the
// others are served.
func (s *Server) SetAddresses(addrs []netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = addrs
	if !s.serving {
		return nil
	}
	return s.reconcile()
}

// Serve listens until ctx ends, then answers on for the lameduck time while Ready says
// no, and returns nil. It returns an error when an address cannot be bound at the
// start or a socket fails.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	s.serving = true
	err := s.reconcile()
	s.mu.Unlock()
	defer s.closeAll()
	if err != nil {
		return err
	}
	s.accepting.Store(true)
	defer s.accepting.Store(false)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go s.forward.run(work)
	select {
	case err := <-s.failed:
		return err
	case <-ctx.Done():
	}
	s.accepting.Store(false)
	if d := s.forward.lameduck(); d > 0 {
		time.Sleep(d)
	}
	return nil
}

// reconcile opens and closes listeners until they are those wanted. The caller holds mu.
func (s *Server) reconcile() error {
	want := make(map[netip.AddrPort]bool, len(s.wanted))
	var errs []error
	for _, a := range s.wanted {
		want[a] = true
		if s.listeners[a] != nil {
			continue
		}
		l, err := s.listen(a)
		if err != nil {
			errs = append(errs, fmt.Errorf("dns: listen on %s: %w", a, err))
			continue
		}
		s.listeners[a] = l
	}
	for a, l := range s.listeners {
		if !want[a] {
			s.close(l)
			delete(s.listeners, a)
		}
	}
	return errors.Join(errs...)
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = false
	for a, l := range s.listeners {
		s.close(l)
		delete(s.listeners, a)
	}
}

// listensOn tells whether a is one of the server's own addresses.
func (s *Server) listensOn(a netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wanted {
		if w == a || w.Port() == a.Port() && w.Addr().IsUnspecified() && a.Addr().IsLoopback() {
			return true
		}
	}
	return false
}

// Health is the handler of :8080/health: 200 while the process lives.
func (s *Server) Health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "OK") })
}

// ReadyHandler is the handler of :8181/ready: 200 when Ready, else 503 and what is
// waited for.
func (s *Server) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.Ready() {
			fmt.Fprint(w, "OK")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "kubernetes")
	})
}
