package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Health is what the proxy last knew of itself. Both families are programmed in one pass,
// so they share its times.
type Health struct {
	mu       sync.Mutex
	now      func() time.Time
	queued   time.Time // oldest change not applied yet
	updated  time.Time // last change applied
	leaving  bool
	limit    time.Duration
	families []string

	healthz, livez *prometheus.CounterVec
}

// NewHealth makes a Health that turns unhealthy when a change has waited longer than
// limit (kube-proxy: twice the sync period, 60 s). families are IPv4 and IPv6, as far as
// they are served.
func NewHealth(limit time.Duration, now func() time.Time, families ...string) *Health {
	probes := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code"})
	}
	return &Health{limit: limit, now: now, families: families,
		healthz: probes("kubeproxy_proxy_healthz_total", "Cumulative proxy healthz HTTP status"),
		livez:   probes("kubeproxy_proxy_livez_total", "Cumulative proxy livez HTTP status")}
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

// Healthy tells whether changes reach the kernel in time.
func (h *Health) Healthy() bool { return h.state(true).Healthy }

// proxyHealth is the body of /healthz and /livez.
type proxyHealth struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyHealth `json:"status,omitempty"`
}

type familyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// state is the health now; of the node too, or of the process alone. Before the first rules
// are in force only the process is healthy: kube-proxy says so of the node as well, and
// balancers send to a new node that serves nothing yet.
func (h *Health) state(node bool) proxyHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	s := proxyHealth{CurrentTime: now, LastUpdated: h.updated, Status: map[string]familyHealth{}}
	s.Healthy = h.queued.IsZero() || now.Sub(h.queued) < h.limit
	if node && h.updated.IsZero() {
		s.Healthy = false
	}
	if !h.updated.IsZero() {
		for _, f := range h.families {
			s.Status[f] = familyHealth{h.updated, s.Healthy}
		}
	}
	if node {
		eligible := !h.leaving
		s.NodeEligible = &eligible
	}
	return s
}

// HealthHandler is :10256: /healthz with node eligibility, /livez without.
func (h *Health) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	serve := func(node bool, count *prometheus.CounterVec) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			s := h.state(node)
			ok := s.Healthy && (s.NodeEligible == nil || *s.NodeEligible)
			if ok {
				s.LastUpdated = s.CurrentTime // a healthy proxy was updated just now, however idle it is
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			code := http.StatusOK
			if !ok {
				code = http.StatusServiceUnavailable
			}
			count.WithLabelValues(fmt.Sprint(code)).Inc()
			w.WriteHeader(code)
			body, _ := json.Marshal(s)
			w.Write(body)
		}
	}
	mux.HandleFunc("/healthz", serve(true, h.healthz))
	mux.HandleFunc("/livez", serve(false, h.livez))
	return mux
}

func (h *Health) collectors() []prometheus.Collector {
	return []prometheus.Collector{h.healthz, h.livez}
}
