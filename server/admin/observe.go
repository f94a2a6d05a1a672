package admin

import (
	"time"

	"fairway/proxy"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Observer turns the loop's passes into health and metrics, under kube-proxy's names
// and labels where kube-proxy has them. One pass programs both families, so both get its
// time.
type Observer struct {
	health   *Health
	families []string

	sync, full, partial, network, flowTime        *prometheus.HistogramVec
	lastQueued, lastSync, noLocal                 *prometheus.GaugeVec
	failures, partialFailures, cleanup, flows     *prometheus.CounterVec
	servicesTotal, slicesTotal, drift             prometheus.Counter
	servicesPending, slicesPending, ports, chosen prometheus.Gauge
}

const syncRules = "kubeproxy_sync_proxy_rules_"

// NewObserver registers the metrics kube-proxy has in that mode; in modes it does not
// have, those every mode has.
func NewObserver(reg prometheus.Registerer, health *Health, mode string) *Observer {
	o := &Observer{health: health, families: health.families}
	o.common(reg)
	family := []string{"ip_family"}
	switch mode {
	case "iptables":
		o.failures = counters(reg, syncRules+"iptables_restore_failures_total", "Cumulative proxy iptables restore failures", family)
		o.partialFailures = counters(reg, syncRules+"iptables_partial_restore_failures_total", "Cumulative proxy iptables partial restore failures", family)
	case "ipvs":
		o.failures = counters(reg, syncRules+"iptables_restore_failures_total", "Cumulative proxy iptables restore failures", family)
	case "nftables":
		o.failures = counters(reg, syncRules+"nftables_sync_failures_total", "Cumulative proxy nftables sync failures", family)
		o.cleanup = counters(reg, syncRules+"nftables_cleanup_failures_total", "Cumulative proxy nftables cleanup failures", family)
	default:
		o.failures = counters(reg, "fairway_sync_failures_total", "Passes whose rules could not be put in force", family)
	}
	if mode == "iptables" || mode == "nftables" {
		o.full = histogram(reg, "kubeproxy_sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs", syncBuckets())
		o.partial = histogram(reg, "kubeproxy_sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs", syncBuckets())
	}
	for _, f := range o.families { // a rate needs the zero before the first
		for _, c := range []*prometheus.CounterVec{o.failures, o.partialFailures, o.cleanup, o.flows} {
			if c != nil {
				c.WithLabelValues(f)
			}
		}
	}
	return o
}

func (o *Observer) common(reg prometheus.Registerer) {
	family := []string{"ip_family"}
	o.sync = histogram(reg, syncRules+"duration_seconds", "SyncProxyRules latency in seconds", syncBuckets())
	o.network = histogram(reg, "kubeproxy_network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds", networkBuckets())
	o.flowTime = histogram(reg, "kubeproxy_conntrack_reconciler_sync_duration_seconds", "ReconcileConntrackFlowsLatency latency in seconds", syncBuckets())
	o.flows = counters(reg, "kubeproxy_conntrack_reconciler_deleted_entries_total", "Cumulative conntrack flows deleted by conntrack reconciler", family)
	o.lastQueued = gauges(reg, syncRules+"last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued", family)
	o.lastSync = gauges(reg, syncRules+"last_timestamp_seconds", "The last time proxy rules were successfully synced", family)
	o.noLocal = gauges(reg, syncRules+"no_local_endpoints_total", "Number of services with a Local traffic policy and no endpoints", []string{"traffic_policy", "ip_family"})
	o.servicesTotal = counter(reg, syncRules+"service_changes_total", "Cumulative proxy rules Service changes")
	o.servicesPending = gauge(reg, syncRules+"service_changes_pending", "Pending proxy rules Service changes")
	o.slicesTotal = counter(reg, syncRules+"endpoint_changes_total", "Cumulative proxy rules Endpoint changes")
	o.slicesPending = gauge(reg, syncRules+"endpoint_changes_pending", "Pending proxy rules Endpoint changes")
	o.drift = counter(reg, "fairway_drift_lines_total", "Lines by which the kernel differed from the program at an audit.")
	o.ports = gauge(reg, "fairway_service_ports", "Service ports this node serves.")
	o.chosen = gauge(reg, "fairway_service_endpoints", "Endpoints chosen for them.")
	reg.MustRegister(o.health.collectors()...)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// networkBuckets are those of the SLO on network programming latency; the one of zero is
// kube-proxy's too.
func networkBuckets() []float64 {
	out := []float64{0}
	for _, part := range [][]float64{
		prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7),
	} {
		out = append(out, part...)
	}
	return out
}

// Queued notes a change.
func (o *Observer) Queued() {
	o.health.Queued()
	o.eachFamily(func(f string) { o.lastQueued.WithLabelValues(f).SetToCurrentTime() })
}

// Changed notes how many Services and EndpointSlices differ from those in force: they
// pend until Applied. Those seen for the first time in news count in the totals.
func (o *Observer) Changed(services, slices, newServices, newSlices int) {
	o.servicesPending.Set(float64(services))
	o.slicesPending.Set(float64(slices))
	o.servicesTotal.Add(float64(newServices))
	o.slicesTotal.Add(float64(newSlices))
}

// Applied notes a pass whose rules are in force; full says the kernel was listed for it.
func (o *Observer) Applied(took time.Duration, plan *proxy.Plan, full bool) {
	o.health.Applied()
	o.servicesPending.Set(0)
	o.slicesPending.Set(0)
	kind := o.partial
	if full {
		kind = o.full
	}
	o.eachFamily(func(f string) {
		o.sync.WithLabelValues(f).Observe(took.Seconds())
		if kind != nil {
			kind.WithLabelValues(f).Observe(took.Seconds())
		}
		o.lastSync.WithLabelValues(f).SetToCurrentTime()
	})
	o.plan(plan)
}

func (o *Observer) plan(plan *proxy.Plan) {
	endpoints := 0
	type key struct{ policy, family string }
	count := map[key]int{}
	for _, sp := range plan.Ports {
		endpoints += len(sp.Internal())
		if !sp.HasEndpoints || len(sp.Local) > 0 {
			continue
		}
		if sp.InternalLocal {
			count[key{"internal", familyOf(sp.IPv6)}]++
		}
		if sp.ExternalLocal && sp.External() {
			count[key{"external", familyOf(sp.IPv6)}]++
		}
	}
	o.ports.Set(float64(len(plan.Ports)))
	o.chosen.Set(float64(endpoints))
	o.eachFamily(func(f string) {
		for _, policy := range []string{"internal", "external"} {
			o.noLocal.WithLabelValues(policy, f).Set(float64(count[key{policy, f}]))
		}
	})
}

// Programmed notes the time from the change of an endpoint, as its slice tells
// (annotation endpoints.kubernetes.io/last-change-trigger-time), to its rules in force.
func (o *Observer) Programmed(v6 bool, took time.Duration) {
	o.network.WithLabelValues(familyOf(v6)).Observe(took.Seconds())
}

// Failed notes a pass the kernel refused. Of kube-proxy's two counters of iptables a
// failed change counts in the partial one, what fails after a listing in the other.
func (o *Observer) Failed(_ error, full bool) {
	c := o.failures
	if !full && o.partialFailures != nil {
		c = o.partialFailures
	}
	o.eachFamily(func(f string) { c.WithLabelValues(f).Inc() })
}

// Flows notes a round of deleting stale flows of one family.
func (o *Observer) Flows(v6 bool, deleted int, took time.Duration) {
	o.flowTime.WithLabelValues(familyOf(v6)).Observe(took.Seconds())
	o.flows.WithLabelValues(familyOf(v6)).Add(float64(deleted))
}

// Drift notes what an audit found.
func (o *Observer) Drift(lines []string) { o.drift.Add(float64(len(lines))) }

func (o *Observer) eachFamily(f func(string)) {
	for _, family := range o.families {
		f(family)
	}
}

func familyOf(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

func histogram(reg prometheus.Registerer, name, help string, buckets []float64) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"ip_family"})
	reg.MustRegister(h)
	return h
}

func counters(reg prometheus.Registerer, name, help string, labels []string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	reg.MustRegister(c)
	return c
}

func gauges(reg prometheus.Registerer, name, help string, labels []string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	reg.MustRegister(g)
	return g
}

func counter(reg prometheus.Registerer, name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	reg.MustRegister(c)
	return c
}

func gauge(reg prometheus.Registerer, name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	reg.MustRegister(g)
	return g
}
