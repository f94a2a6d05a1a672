// Package admin serves what operators and cloud balancers ask a node proxy: kube-proxy's
// ports, paths, codes and bodies (:10249 /metrics /proxyMode /configz /healthz, :10256
// /healthz /livez, healthCheckNodePorts). It is told the state; it never looks it up.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"golang.org/x/net/netutil"
)

// Metrics is :10249. Programs are the texts at /debug/program/NAME, the form `compile`
// and `diff` use.
type Metrics struct {
	Registry *prometheus.Registry
	// Mode is the proxy mode in force.
	Mode func() string
	// Ready is nil when every role does its job, else it says what is missing.
	Ready func() error
	// Config is printed at /configz, an object per configuration's name.
	Config   map[string]any
	Programs map[string]func() string
	// Profile serves /debug/pprof and /debug/flags/v.
	Profile bool
	// SetVerbosity is told the number put to /debug/flags/v.
	SetVerbosity func(uint32)
	// Flags are the command line's, for /flagz; nil serves none.
	Flags map[string]string
	// Status is for /statusz; nil serves none.
	Status *Status
}

// Handler serves Metrics.
func (m *Metrics) Handler() http.Handler {
	p := &paths{ServeMux: http.NewServeMux()}
	health := newPing(m.Registry)
	health.add(p)
	p.get("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { plain(w, m.Mode()) })
	p.get("/metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}).ServeHTTP)
	p.get("/configz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		text, err := json.Marshal(m.Config)
		if err != nil {
			http.Error(w, fmt.Sprintf("error marshaling json: %v", err), http.StatusInternalServerError)
			return
		}
		w.Write(text)
	})
	p.get("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		plain(w, "ok")
	})
	for name, text := range m.Programs {
		p.HandleFunc("/debug/program/"+name, func(w http.ResponseWriter, _ *http.Request) { plain(w, text()) })
	}
	if m.Profile {
		profiling(p.ServeMux, m.SetVerbosity)
	}
	if m.Flags != nil {
		p.get("/flagz", m.flagz)
	}
	if m.Status != nil {
		p.get("/statusz", func(w http.ResponseWriter, r *http.Request) { m.Status.serve(w, r, p.listed) })
	}
	p.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"paths": p.listed})
	})
	return p
}

// paths is a mux that knows what it serves.
type paths struct {
	*http.ServeMux
	listed []string
}

func (p *paths) get(path string, h http.HandlerFunc) {
	p.HandleFunc(path, h)
	p.listed = append(p.listed, path)
	slices.Sort(p.listed)
}

func writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	json.NewEncoder(w).Encode(body)
}

func plain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprint(w, text)
}

// Serve serves h at addr until ctx ends, binding again every five seconds while the
// address is taken; report (may be nil) is told why it is not served, and nil once it is.
func Serve(ctx context.Context, addr string, h http.Handler, report func(error)) {
	if report == nil {
		report = func(error) {}
	}
	for ctx.Err() == nil {
		err := ServeOnce(ctx, addr, h, func() { report(nil) })
		if err == nil || ctx.Err() != nil {
			return
		}
		report(err)
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}

// Whoever reaches a health port may hold connections open, and they must not take the files
// that Services need: there are so many at once, and none stays that says nothing.
const (
	mostConns     = 512
	idleTimeout   = 5 * time.Second
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 2 * time.Minute // a profile takes its time
)

// ServeOnce serves h at addr until ctx ends, or returns why it cannot; bound is called
// when the address is held.
func ServeOnce(ctx context.Context, addr string, h http.Handler, bound func()) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serving %s: %w", addr, err)
	}
	bound()
	l = netutil.LimitListener(l, mostConns)
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", addr, err)
	}
	return nil
}
