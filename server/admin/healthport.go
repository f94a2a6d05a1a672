package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"fairway/proxy"
)

// HealthPorts serves the healthCheckNodePorts of Services of type LoadBalancer with
// externalTrafficPolicy Local, so that balancers send only to nodes with an endpoint.
type HealthPorts struct {
	// Healthy is the proxy's own health: an unhealthy proxy takes no new traffic.
	Healthy func() bool
	// Failed is told when a port cannot be served, nil error when it can again.
	Failed func(proxy.HealthCheck, error)

	mu    sync.Mutex
	ports map[uint16]*healthPort
}

type healthPort struct {
	check proxy.HealthCheck
	stop  context.CancelFunc
}

// Set opens, closes and updates the ports so that exactly checks are served.
func (h *HealthPorts) Set(ctx context.Context, checks []proxy.HealthCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ports == nil {
		h.ports = map[uint16]*healthPort{}
	}
	want := map[uint16]bool{}
	for _, c := range checks {
		want[c.Port] = true
		if p := h.ports[c.Port]; p != nil {
			p.check = c
			continue
		}
		h.open(ctx, c)
	}
	for port, p := range h.ports {
		if !want[port] {
			p.stop()
			delete(h.ports, port)
		}
	}
}

func (h *HealthPorts) open(ctx context.Context, c proxy.HealthCheck) {
	ctx, stop := context.WithCancel(ctx)
	h.ports[c.Port] = &healthPort{check: c, stop: stop}
	report := func(err error) {
		if h.Failed != nil {
			h.Failed(c, err)
		}
	}
	go Serve(ctx, fmt.Sprintf(":%d", c.Port), h.handler(c.Port), report)
}

func (h *HealthPorts) handler(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		p := h.ports[port]
		h.mu.Unlock()
		if p == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h.mu.Lock()
		c := p.check
		h.mu.Unlock()
		healthy := h.Healthy()
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", fmt.Sprint(c.LocalReady))
		writeJSON(w, healthy && c.LocalReady > 0, map[string]any{
			"service":             map[string]string{"namespace": c.Service.Namespace, "name": c.Service.Name},
			"localEndpoints":      c.LocalReady,
			"serviceProxyHealthy": healthy,
		})
	})
}
