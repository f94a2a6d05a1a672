package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"fairway/model"
	"fairway/server/admin"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// openDNSPorts serves what CoreDNS serves beside DNS, where probes and dashboards look. A
// port that is taken on the node is said, and tried again.
func (d *daemon) openDNSPorts() {
	f := d.cfg.forward()
	for _, p := range []struct {
		name, path, addr string
		handler          http.Handler
	}{
		{"health", "/health", f.Health, d.dns.Health()},
		{"ready", "/ready", f.Ready, d.dns.ReadyHandler()},
		{"prometheus", "/metrics", f.Metrics, promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{})},
	} {
		if p.addr == "" {
			continue
		}
		mux := http.NewServeMux()
		mux.Handle("GET "+p.path, p.handler)
		said := ""
		d.jobs = append(d.jobs, func(ctx context.Context) error {
			admin.Serve(ctx, p.addr, mux, func(err error) {
				now := ""
				if err != nil {
					now = err.Error()
				}
				if now == said {
					return
				}
				said = now
				d.dnsPortTaken(p.name, p.addr, now)
			})
			return nil
		})
	}
}

// dnsPortTaken keeps the Problem of a port, until it is served.
func (d *daemon) dnsPortTaken(name, addr, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dnsPorts == nil {
		d.dnsPorts = map[string]model.Problem{}
	}
	delete(d.dnsPorts, name)
	if why != "" {
		slog.Error("dns: a port is not served", "what", name, "address", addr, "err", why)
		d.dnsPorts[name] = model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: d.cfg.raw.Node}}, Field: "dns " + name,
			Reason: "PortNotServed", Message: fmt.Sprintf("%s cannot be served at %s: %s; give dns.%sAddress (or the Corefile's %s) another one", name, addr, why, fieldOf(name), name)}
	}
	d.loop.Wake()
}

func fieldOf(name string) string {
	if name == "prometheus" {
		return "metrics"
	}
	return name
}

// dnsPortProblems are those of the ports that are not served.
func (d *daemon) dnsPortProblems() []model.Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []model.Problem
	for _, name := range []string{"health", "ready", "prometheus"} {
		if p, bad := d.dnsPorts[name]; bad {
			out = append(out, p)
		}
	}
	return out
}
