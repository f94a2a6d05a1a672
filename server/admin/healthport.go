package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"fairway/proxy"
)

// HealthPorts serves the healthCheckNodePorts of Services of type LoadBalancer with
// externalTrafficPolicy Local, so that balancers send only to nodes with an endpoint.
type HealthPorts struct {
	// Healthy is the proxy's own health: an unhealthy proxy takes no new traffic.
	Healthy func() bool
	// Failed is told when a port cannot be served, and when it can again (nil). Failures
	// knows of it then.
	Failed func(proxy.HealthCheck, error)

	mu    sync.Mutex
	ports map[uint16]*healthPort
	addrs []netip.Addr
}

type healthPort struct {
	check proxy.HealthCheck
	stop  context.CancelFunc
	err   error // why it is not served, on some address
}

// HealthFailure is a port that could not be bound; it is tried again.
type HealthFailure struct {
	proxy.HealthCheck
	Err error
}

// Set opens, closes and updates the ports so that exactly checks are served, on the
// given addresses of the node (NodePorts' own), or on all when there are none.
func (h *HealthPorts) Set(ctx context.Context, checks []proxy.HealthCheck, addrs []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ports == nil {
		h.ports = map[uint16]*healthPort{}
	}
	if !slices.Equal(addrs, h.addrs) {
		for _, p := range h.ports {
			p.stop()
		}
		clear(h.ports)
		h.addrs = slices.Clone(addrs)
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

// Failures are the ports that cannot be served, by number.
func (h *HealthPorts) Failures() []HealthFailure {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []HealthFailure
	for _, p := range h.ports {
		if p.err != nil {
			out = append(out, HealthFailure{p.check, p.err})
		}
	}
	slices.SortFunc(out, func(a, b HealthFailure) int { return int(a.Port) - int(b.Port) })
	return out
}

func (h *HealthPorts) open(ctx context.Context, c proxy.HealthCheck) {
	ctx, stop := context.WithCancel(ctx)
	p := &healthPort{check: c, stop: stop}
	h.ports[c.Port] = p
	hosts := []string{""}
	if len(h.addrs) > 0 {
		hosts = nil
		for _, a := range h.addrs {
			hosts = append(hosts, a.String())
		}
	}
	for _, host := range hosts {
		addr := net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
		go Serve(ctx, addr, h.handler(c.Port), func(err error) { h.failed(p, err) })
	}
}

func (h *HealthPorts) failed(p *healthPort, err error) {
	h.mu.Lock()
	news := (p.err == nil) != (err == nil)
	p.err = err
	check := p.check
	h.mu.Unlock()
	if news && h.Failed != nil {
		h.Failed(check, err)
	}
}

// healthBody is kube-proxy's, to the letter.
const healthBody = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

func (h *HealthPorts) handler(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		p := h.ports[port]
		if p == nil {
			h.mu.Unlock()
			w.WriteHeader(http.StatusNotFound)
			return
		}
		c := p.check
		h.mu.Unlock()
		healthy := h.Healthy()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(c.LocalReady))
		if !healthy || c.LocalReady == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, healthBody, c.Service.Namespace, c.Service.Name, c.LocalReady, healthy)
	})
}
