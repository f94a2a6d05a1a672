package dnsserver

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// peerMetrics are what CoreDNS's dashboards and alerts look for besides queries and
// upstreams: that it is there, and what goes wrong.
func (m *metrics) peerMetrics(version string) []prometheus.Collector {
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_panics_total", Help: "Queries whose answering failed in this program."})
	m.reloadFailed = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_reload_failed_total", Help: "Changed Corefiles that were not taken."})
	m.cacheRequests = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_requests_total",
		Help: "Questions to the cache of upstream answers.", ConstLabels: prometheus.Labels{"server": m.server, "zones": ".", "view": ""}})
	m.proxyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coredns_proxy_request_duration_seconds",
		Help: "Time an upstream took.", Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		ConstLabels: prometheus.Labels{"proxy_name": "forward"}}, []string{"to", "rcode"})
	m.proxyProbes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_proxy_healthcheck_failures_total",
		Help: "Probes an upstream did not answer.", ConstLabels: prometheus.Labels{"proxy_name": "forward"}}, []string{"to"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "coredns_build_info", Help: "1, with what is running.",
		ConstLabels: prometheus.Labels{"version": version, "revision": "", "goversion": runtime.Version()}})
	build.Set(1)
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coredns_plugin_enabled", Help: "1 for each of CoreDNS's plugins whose work is done.",
		ConstLabels: prometheus.Labels{"server": m.server, "zone": ".", "view": ""}}, []string{"name"})
	for _, name := range []string{"cache", "errors", "forward", "kubernetes", "loadbalance", "loop", "prometheus"} {
		enabled.WithLabelValues(name).Set(1)
	}
	return []prometheus.Collector{m.panics, m.reloadFailed, m.cacheRequests, m.proxyDuration, m.proxyProbes, build, enabled}
}

// ReloadFailed counts a configuration that was not taken (coredns_reload_failed_total).
func (s *Server) ReloadFailed() { s.metrics.reloadFailed.Inc() }
