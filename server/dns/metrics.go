package dnsserver

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics carry CoreDNS's names and labels, so that its dashboards work. What is
// counted per query is plain counters, summed when scraped.
type metrics struct {
	server    string // the label, as in dns://:53
	malformed atomic.Uint64
	dropped   atomic.Uint64
	limited   atomic.Uint64

	mu     sync.Mutex
	all    []*counts
	unused []*counts // of sockets that are closed; their numbers still count

	rejected    prometheus.Counter
	noHealthy   prometheus.Counter
	upRequests  *prometheus.CounterVec
	upResponses *prometheus.CounterVec
	upDuration  *prometheus.HistogramVec
	upProbes    *prometheus.CounterVec
	upLooping   *prometheus.GaugeVec
	cacheHits   *prometheus.CounterVec
	cacheMiss   prometheus.Counter

	panics, reloadFailed, cacheRequests prometheus.Counter
	proxyDuration                       *prometheus.HistogramVec
	proxyProbes                         *prometheus.CounterVec

	cacheEvictions          *prometheus.CounterVec
	prefetched, servedStale prometheus.Counter
	cacheEntries            *prometheus.GaugeVec

	requestsDesc, responsesDesc, doDesc, malformedDesc, droppedDesc, limitedDesc *prometheus.Desc
	durationDesc, requestSizeDesc, responseSizeDesc                              *prometheus.Desc
}

// counts gives a socket its counters.
func (m *metrics) counts(tcp, v6 bool) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.unused {
		if c.tcp == tcp && c.v6 == v6 {
			m.unused = slices.Delete(m.unused, i, i+1)
			return c
		}
	}
	c := &counts{tcp: tcp, v6: v6}
	m.all = append(m.all, c)
	return c
}

// release takes them back for the next socket of the kind.
func (m *metrics) release(c *counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unused = append(m.unused, c)
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

func newMetrics(reg prometheus.Registerer, addrs []netip.AddrPort, version string) *metrics {
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
	m.droppedDesc = prometheus.NewDesc("fairway_dns_busy_total", "Queries refused or dropped because too many waited for an answer from elsewhere.", nil, nil)
	m.limitedDesc = prometheus.NewDesc("fairway_dns_limited_total", "Queries dropped, and replies cut to TC, because a client had its share.", nil, nil)
	m.durationDesc = prometheus.NewDesc("coredns_dns_request_duration_seconds", "Time from a query to its reply.", nil, fixed)
	m.requestSizeDesc = prometheus.NewDesc("coredns_dns_request_size_bytes", "Size of queries.", []string{"proto"}, fixed)
	m.responseSizeDesc = prometheus.NewDesc("coredns_dns_response_size_bytes", "Size of replies as sent.", []string{"proto"}, fixed)
	m.forwardMetrics()
	m.cacheMetrics()
	peers := m.peerMetrics(version)
	if reg != nil {
		reg.MustRegister(peers...)
		reg.MustRegister(m, m.rejected, m.noHealthy, m.upRequests, m.upResponses,
			m.upDuration, m.upProbes, m.upLooping, m.cacheHits, m.cacheMiss, m.cacheEntries, m.cacheEvictions, m.prefetched, m.servedStale)
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
	m.cacheEvictions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_cache_evictions_total",
		Help: "Upstream answers dropped from a full cache.", ConstLabels: fixed}, []string{"type"})
	m.prefetched = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_prefetch_total",
		Help: "Upstream answers asked for again before their end.", ConstLabels: fixed})
	m.servedStale = prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_served_stale_total",
		Help: "Upstream answers given after their end.", ConstLabels: fixed})
	m.cacheEntries = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "coredns_cache_entries",
		Help: "Upstream answers kept.", ConstLabels: fixed}, []string{"type"})
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
	m.proxyDuration.WithLabelValues(to.String(), rcode).Observe(took.Seconds())
}

func (m *metrics) probeFailed(to netip.AddrPort) {
	m.upProbes.WithLabelValues(to.String()).Inc()
	m.proxyProbes.WithLabelValues(to.String()).Inc()
}

func (m *metrics) looping(to netip.AddrPort, yes bool) {
	v := 0.0
	if yes {
		v = 1
	}
	m.upLooping.WithLabelValues(to.String()).Set(v)
}

func (m *metrics) forget(u *upstream) {
	to := prometheus.Labels{"to": u.addr.String()}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.upLooping, m.upRequests, m.upResponses, m.upDuration, m.upProbes, m.proxyDuration, m.proxyProbes} {
		v.DeletePartialMatch(to)
	}
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.requestsDesc, m.responsesDesc, m.doDesc, m.malformedDesc, m.droppedDesc, m.limitedDesc,
		m.durationDesc, m.requestSizeDesc, m.responseSizeDesc} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	all := slices.Clone(m.all)
	m.mu.Unlock()
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		if v > 0 || len(labels) == 0 {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
		}
	}
	var types [2][2][typeSlots]uint64
	var rcodes [rcodeSlots]uint64
	var do uint64
	for _, c := range all {
		for t := range c.types {
			types[slot(c.tcp)][slot(c.v6)][t] += c.types[t].Load()
		}
		for code := range c.rcodes {
			rcodes[code] += c.rcodes[code].Load()
		}
		do += c.do.Load()
	}
	for p, proto := range protos() {
		for f, family := range []string{"1", "2"} { // CoreDNS: 1 is IPv4, 2 is IPv6
			for t, v := range types[p][f] {
				count(m.requestsDesc, v, proto, family, slotName(t))
			}
		}
	}
	for code, v := range rcodes {
		count(m.responsesDesc, v, rcodeName(code))
	}
	count(m.doDesc, do)
	count(m.malformedDesc, m.malformed.Load())
	count(m.droppedDesc, m.dropped.Load())
	count(m.limitedDesc, m.limited.Load())
	m.collectHistograms(ch, all)
}

func (m *metrics) collectHistograms(ch chan<- prometheus.Metric, all []*counts) {
	var durations []*histogram
	var requests, responses [2][]*histogram
	for _, c := range all {
		p := slot(c.tcp)
		durations = append(durations, &c.duration)
		requests[p], responses[p] = append(requests[p], &c.request), append(responses[p], &c.response)
	}
	ch <- sumHistograms(m.durationDesc, durations, timeBounds(), 1e-9)
	for p, proto := range protos() {
		ch <- sumHistograms(m.requestSizeDesc, requests[p], sizeBounds(), 1, proto)
		ch <- sumHistograms(m.responseSizeDesc, responses[p], sizeBounds(), 1, proto)
	}
}

func protos() []string { return []string{"udp", "tcp"} }

func slot(second bool) int {
	if second {
		return 1
	}
	return 0
}

func rcodeName(code int) string {
	name := wire.RcodeToString[code]
	switch {
	case code == wire.RcodeBadVers:
		return "BADVERS" // the library has TSIG's meaning of the number
	case name == "":
		return fmt.Sprint(code)
	}
	return name
}
