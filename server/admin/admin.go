// Package admin serves what operators and cloud balancers ask a node proxy: kube-proxy's
// ports, paths, codes and bodies (:10249 /metrics /proxyMode /healthz, :10256 /healthz
// /livez, healthCheckNodePorts). It is told the state; it never looks it up.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is what the proxy last knew of itself. The zero value is a proxy that has
// queued nothing yet.
type Health struct {
	mu      sync.Mutex
	now     func() time.Time
	queued  time.Time // oldest change not applied yet
	updated time.Time // last change applied
	leaving bool
	limit   time.Duration
}

// NewHealth makes a Health that turns unhealthy when a change has waited longer than
// limit (kube-proxy: twice the sync period, 60 s).
func NewHealth(limit time.Duration, now func() time.Time) *Health {
	return &Health{limit: limit, now: now}
}

// Queued notes that a change waits to be applied.
func (h *Health) Queued() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queued.IsZero() {
		h.queued = h.now()
	}
}

// Applied notes that everything queued so far is in the kernel.
func (h *Health) Applied() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queued, h.updated = time.Time{}, h.now()
}

// Leaving notes whether this node is going away (KEP-3836).
func (h *Health) Leaving(v bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = v
}

func (h *Health) state() (healthy, eligible bool, updated, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now = h.now()
	healthy = !h.updated.IsZero() && (h.queued.IsZero() || now.Sub(h.queued) < h.limit)
	updated = h.updated
	if healthy && h.queued.IsZero() {
		updated = now
	}
	return healthy, !h.leaving, updated, now
}

// Healthy tells whether changes reach the kernel in time.
func (h *Health) Healthy() bool {
	ok, _, _, _ := h.state()
	return ok
}

// HealthHandler is :10256: /healthz with node eligibility, /livez without.
func (h *Health) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	serve := func(node bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			healthy, eligible, updated, now := h.state()
			body := map[string]any{"lastUpdated": updated, "currentTime": now, "healthy": healthy}
			ok := healthy
			if node {
				body["nodeEligible"] = eligible
				ok = healthy && eligible
			}
			writeJSON(w, ok, body)
		}
	}
	mux.HandleFunc("/healthz", serve(true))
	mux.HandleFunc("/livez", serve(false))
	return mux
}

func writeJSON(w http.ResponseWriter, ok bool, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(body)
}

// Metrics is :10249. mode is the proxy mode in force; config is printed at /configz;
// programs are the texts at /debug/program/NAME, the form `compile` and `diff` use.
type Metrics struct {
	Registry *prometheus.Registry
	Mode     func() string
	Healthy  func() bool
	// Ready is nil when every role does its job, else it says what is missing.
	Ready    func() error
	Config   any
	Programs map[string]func() string
	Profile  bool
}

// Handler serves Metrics.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, m.Mode())
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !m.Healthy() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		plain(w, "ok")
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		plain(w, "ok")
	})
	mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, true, m.Config)
	})
	for name, text := range m.Programs {
		mux.HandleFunc("/debug/program/"+name, func(w http.ResponseWriter, _ *http.Request) { plain(w, text()) })
	}
	if m.Profile {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	}
	return mux
}

func plain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprint(w, text)
}

// Serve serves h at addr until ctx ends, binding again every five seconds while the
// address is taken; report (may be nil) is told why it is not served.
func Serve(ctx context.Context, addr string, h http.Handler, report func(error)) {
	for ctx.Err() == nil {
		err := serveOnce(ctx, addr, h)
		if err == nil || ctx.Err() != nil {
			return
		}
		if report != nil {
			report(fmt.Errorf("serving %s: %w", addr, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}

func serveOnce(ctx context.Context, addr string, h http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
