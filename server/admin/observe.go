package admin

import (
	"time"

	"fairway/proxy"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Observer turns the loop's passes into health and metrics, under kube-proxy's names
// where kube-proxy has them.
type Observer struct {
	health *Health

	syncDuration  prometheus.Histogram
	lastQueued    prometheus.Gauge
	lastSync      prometheus.Gauge
	failures      prometheus.Counter
	drift         prometheus.Counter
	noLocal       *prometheus.GaugeVec
	ports, chosen prometheus.Gauge
}

// NewObserver registers the metrics; mode is the proxy mode for the failure counter's
// name (kubeproxy_sync_proxy_rules_nftables_sync_failures_total).
func NewObserver(reg prometheus.Registerer, health *Health, mode string) *Observer {
	o := &Observer{
		health: health,
		syncDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeproxy_sync_proxy_rules_duration_seconds", Help: "Time from objects to rules in the kernel, per pass.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		lastQueued: gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When a change was last queued."),
		lastSync:   gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When rules were last applied."),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeproxy_sync_proxy_rules_" + failureName(mode), Help: "Passes the kernel refused.",
		}),
		drift: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairway_drift_lines_total", Help: "Lines by which the kernel differed from the program at an audit.",
		}),
		noLocal: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubeproxy_sync_proxy_rules_no_local_endpoints_total", Help: "Service ports with policy Local and no endpoint on this node.",
		}, []string{"traffic_policy"}),
		ports:  gauge("fairway_service_ports", "Service ports this node serves."),
		chosen: gauge("fairway_service_endpoints", "Endpoints chosen for them."),
	}
	reg.MustRegister(o.syncDuration, o.lastQueued, o.lastSync, o.failures, o.drift, o.noLocal, o.ports, o.chosen,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return o
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func failureName(mode string) string {
	if mode == "iptables" {
		return "iptables_restore_failures_total"
	}
	return mode + "_sync_failures_total"
}

// Queued notes a change.
func (o *Observer) Queued() {
	o.health.Queued()
	o.lastQueued.SetToCurrentTime()
}

// Applied notes a pass whose rules are in force.
func (o *Observer) Applied(took time.Duration, plan *proxy.Plan) {
	o.health.Applied()
	o.syncDuration.Observe(took.Seconds())
	o.lastSync.SetToCurrentTime()
	endpoints, internal, external := 0, 0, 0
	for _, sp := range plan.Ports {
		endpoints += len(sp.Internal())
		if sp.HasEndpoints && sp.InternalLocal && len(sp.Local) == 0 {
			internal++
		}
		if sp.HasEndpoints && sp.ExternalLocal && sp.External() && len(sp.Local) == 0 {
			external++
		}
	}
	o.ports.Set(float64(len(plan.Ports)))
	o.chosen.Set(float64(endpoints))
	o.noLocal.WithLabelValues("internal").Set(float64(internal))
	o.noLocal.WithLabelValues("external").Set(float64(external))
}

// Failed notes a pass the kernel refused.
func (o *Observer) Failed(error) { o.failures.Inc() }

// Drift notes what an audit found.
func (o *Observer) Drift(lines []string) { o.drift.Add(float64(len(lines))) }
