package dnsserver

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics carry CoreDNS's names and labels, so that its dashboards work. What is
// counted per query is plain counters, summed when scraped.
type metrics struct {
	server    string // the label, as in dns://:53
	queries   [2][2][typeSlots]atomic.Uint64
	rcodes    [rcodeSlots]atomic.Uint64
	do        atomic.Uint64
	malformed atomic.Uint64

	duration     prometheus.Histogram
	requestSize  *prometheus.HistogramVec
	responseSize *prometheus.HistogramVec
	sizes        [2]struct{ request, response prometheus.Observer }

	rejected     prometheus.Counter
	noHealthy    prometheus.Counter
	upRequests   *prometheus.CounterVec
	upResponses  *prometheus.CounterVec
	upDuration   *prometheus.HistogramVec
	upProbes     *prometheus.CounterVec
	upLooping    *prometheus.GaugeVec
	cacheHits    *prometheus.CounterVec
	cacheMiss    prometheus.Counter
	cacheEntries *prometheus.GaugeVec

	requestsDesc, responsesDesc, doDesc, malformedDesc *prometheus.Desc
}

// typeSlots holds the types counted by name, the last being all others; rcodeSlots
// every code there is (RFC 6895).
const (
	typeSlots  = 13
	rcodeSlots = 24
)

func typeSlot(t uint16) int {
	switch t {
	case wire.TypeA:
		return 0
	case wire.TypeAAAA:
		return 1
	case wire.TypeSRV:
		return 2
	case wire.TypePTR:
		return 3
	case wire.TypeCNAME:
		return 4
	case wire.TypeTXT:
		return 5
	case wire.TypeSOA:
		return 6
	case wire.TypeNS:
		return 7
	case wire.TypeMX:
		return 8
	case wire.TypeHTTPS:
		return 9
	case wire.TypeANY:
		return 10
	case wire.TypeAXFR:
		return 11
	}
	return typeSlots - 1
}

func slotName(slot int) string {
	return [typeSlots]string{"A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "SOA", "NS", "MX", "HTTPS", "ANY", "AXFR", "other"}[slot]
}

func newMetrics(reg prometheus.Registerer, addrs []netip.AddrPort) *metrics {
	m := &metrics{server: "dns://:53"}
	if len(addrs) > 0 {
		m.server = fmt.Sprintf("dns://:%d", addrs[0].Port())
	}
	fixed := prometheus.Labels{"server": m.server, "zone": ".", "view": ""}
	m.requestsDesc = prometheus.NewDesc("coredns_dns_requests_total", "DNS queries received.", []string{"proto", "family", "type"}, fixed)
	m.responsesDesc = prometheus.NewDesc("coredns_dns_responses_total", "DNS replies sent.", []string{"rcode"},
		prometheus.Labels{"server": m.server, "zone": ".", "view": "", "plugin": ""})
	m.doDesc = prometheus.NewDesc("coredns_dns_do_requests_total", "DNS queries with the DO bit.", nil, fixed)
	m.malformedDesc = prometheus.NewDesc("fairway_dns_malformed_total", "Packets that are not DNS messages.", nil, nil)
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "coredns_dns_request_duration_seconds",
		Help: "Time from a query to its reply.", ConstLabels: fixed, Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16)})
	sizes := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: fixed,
			Buckets: []float64{0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3}}, []string{"proto"})
	}
	m.requestSize = sizes("coredns_dns_request_size_bytes", "Size of queries.")
	m.responseSize = sizes("coredns_dns_response_size_bytes", "Size of replies before compression.")
	for i, proto := range []string{"udp", "tcp"} {
		m.sizes[i].request, m.sizes[i].response = m.requestSize.WithLabelValues(proto), m.responseSize.WithLabelValues(proto)
	}
	m.forwardMetrics()
	m.cacheMetrics()
	if reg != nil {
		reg.MustRegister(m, m.duration, m.requestSize, m.responseSize, m.rejected, m.noHealthy, m.upRequests, m.upResponses,
			m.upDuration, m.upProbes, m.upLooping, m.cacheHits, m.cacheMiss, m.cacheEntries)
	}
	return m
}

func (m *metrics) forwardMetrics() {
	m.rejected = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_forward_max_concurrent_rejects_total",
		Help: "Queries refused because too many were on their way upstream."})
	m.noHealthy = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_forward_healthcheck_broken_total",
		Help: "Queries for which no upstream could be used."})
	m.upRequests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_forward_requests_total",
		Help: "Queries sent upstream."}, []string{"to"})
	m.upResponses = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_forward_responses_total",
		Help: "Replies from upstream."}, []string{"to", "rcode"})
	m.upDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coredns_forward_request_duration_seconds",
		Help: "Time an upstream took.", Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16)}, []string{"to", "rcode"})
	m.upProbes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_forward_healthcheck_failures_total",
		Help: "Probes a failing upstream did not answer."}, []string{"to"})
	m.upLooping = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairway_dns_upstream_looping",
		Help: "1 for an upstream that sends queries back here."}, []string{"to"})
}

func (m *metrics) cacheMetrics() {
	fixed := prometheus.Labels{"server": m.server, "zones": ".", "view": ""}
	m.cacheHits = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_cache_hits_total",
		Help: "Upstream answers found in the cache.", ConstLabels: fixed}, []string{"type"})
	m.cacheMiss = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_misses_total",
		Help: "Upstream answers not found in the cache.", ConstLabels: fixed})
	m.cacheEntries = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coredns_cache_entries",
		Help: "Upstream answers kept.", ConstLabels: fixed}, []string{"type"})
}

// served counts one query with its reply.
func (m *metrics) served(req, reply *wire.Msg, tcp, v6 bool, took time.Duration) {
	proto, family := 0, 0
	if tcp {
		proto = 1
	}
	if v6 {
		family = 1
	}
	m.queries[proto][family][typeSlot(req.Question[0].Qtype)].Add(1)
	m.rcodes[min(reply.Rcode, rcodeSlots-1)].Add(1)
	if opt := req.IsEdns0(); opt != nil && opt.Do() {
		m.do.Add(1)
	}
	m.duration.Observe(took.Seconds())
	m.sizes[proto].request.Observe(float64(req.Len()))
	m.sizes[proto].response.Observe(float64(reply.Len()))
}

// upstream counts one exchange.
func (m *metrics) upstream(to netip.AddrPort, reply *wire.Msg, err error, took time.Duration) {
	m.upRequests.WithLabelValues(to.String()).Inc()
	rcode := "SERVFAIL"
	if err == nil {
		rcode = wire.RcodeToString[reply.Rcode]
		m.upResponses.WithLabelValues(to.String(), rcode).Inc()
	}
	m.upDuration.WithLabelValues(to.String(), rcode).Observe(took.Seconds())
}

func (m *metrics) probeFailed(to netip.AddrPort) { m.upProbes.WithLabelValues(to.String()).Inc() }

func (m *metrics) looping(to netip.AddrPort, yes bool) {
	v := 0.0
	if yes {
		v = 1
	}
	m.upLooping.WithLabelValues(to.String()).Set(v)
}

func (m *metrics) forget(u *upstream) { m.upLooping.DeleteLabelValues(u.addr.String()) }

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.requestsDesc
	ch <- m.responsesDesc
	ch <- m.doDesc
	ch <- m.malformedDesc
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, c *atomic.Uint64, labels ...string) {
		if v := c.Load(); v > 0 || len(labels) == 0 {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
		}
	}
	for p, proto := range []string{"udp", "tcp"} {
		for f, family := range []string{"1", "2"} { // CoreDNS: 1 is IPv4, 2 is IPv6
			for t := range typeSlots {
				count(m.requestsDesc, &m.queries[p][f][t], proto, family, slotName(t))
			}
		}
	}
	for code := range rcodeSlots {
		name := wire.RcodeToString[code]
		switch {
		case code == wire.RcodeBadVers:
			name = "BADVERS" // the library has TSIG's meaning of the number
		case name == "":
			name = fmt.Sprint(code)
		}
		count(m.responsesDesc, &m.rcodes[code], name)
	}
	count(m.doDesc, &m.do)
	count(m.malformedDesc, &m.malformed)
}
