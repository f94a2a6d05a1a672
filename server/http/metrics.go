package http

import (
	"net"
	std "net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairway/ingress"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics carry ingress-nginx's names and labels, so that dashboards made for it go on
// working.
type metrics struct {
	ready atomic.Bool

	requests                            *prometheus.CounterVec
	duration, response, connect, header *prometheus.HistogramVec
	requestSize, responseSize           *prometheus.HistogramVec
	reloadSuccess, reloadTime           prometheus.Gauge
	expiry                              *prometheus.GaugeVec
	accepted                            prometheus.Counter
	active                              prometheus.Gauge

	mu   sync.Mutex
	used map[seriesLabels]bool
}

// seriesLabels are the labels that come from the route.
type seriesLabels struct{ host, path, namespace, ingress, service string }

type seriesKey struct {
	route  *ingress.Route
	method string
	status int
}

// series are the handles of one seriesKey, looked up once per Table.
type series struct {
	requests                                               prometheus.Counter
	duration, response, connect, header, reqSize, respSize prometheus.Observer
}

func newMetrics(reg prometheus.Registerer) *metrics {
	const ns = "nginx_ingress_controller"
	labels := []string{"host", "path", "namespace", "ingress", "service", "canary", "method", "status"}
	hist := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: name, Help: help, Buckets: buckets}, labels)
	}
	sizes := prometheus.ExponentialBuckets(10, 10, 7)
	m := &metrics{
		used:          make(map[seriesLabels]bool),
		requests:      prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "requests", Help: "Client requests."}, labels),
		duration:      hist("request_duration_seconds", "Time from the first byte of a request to the last of its answer.", prometheus.DefBuckets),
		response:      hist("response_duration_seconds", "Time spent receiving the answer from the endpoint.", prometheus.DefBuckets),
		connect:       hist("connect_duration_seconds", "Time spent connecting to the endpoint; 0 on a kept connection.", prometheus.DefBuckets),
		header:        hist("header_duration_seconds", "Time to the first byte of the endpoint's answer.", prometheus.DefBuckets),
		requestSize:   hist("request_size", "Size of requests in bytes, header included.", sizes),
		responseSize:  hist("response_size", "Size of answers' bodies in bytes.", sizes),
		reloadSuccess: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "config_last_reload_successful", Help: "Whether a route table is in force."}),
		reloadTime:    prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "config_last_reload_successful_timestamp_seconds", Help: "When the route table was last replaced."}),
		expiry:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Name: "ssl_expire_time_seconds", Help: "When certificates expire, in seconds since 1970."}, []string{"host", "namespace", "secret_name"}),
		accepted:      prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "nginx_process_connections_total", Help: "Client connections accepted.", ConstLabels: prometheus.Labels{"state": "accepted"}}),
		active:        prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "nginx_process_connections", Help: "Client connections open.", ConstLabels: prometheus.Labels{"state": "active"}}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.duration, m.response, m.connect, m.header, m.requestSize, m.responseSize,
			m.reloadSuccess, m.reloadTime, m.expiry, m.accepted, m.active)
	}
	return m
}

// methodLabel keeps the label's values few, whatever clients send.
func methodLabel(m string) string {
	switch m {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE":
		return m
	}
	return "OTHER"
}

func (m *metrics) observe(x *exchange, took time.Duration) {
	s := m.series(x)
	s.requests.Inc()
	s.duration.Observe(took.Seconds())
	s.reqSize.Observe(float64(x.requestLength()))
	s.respSize.Observe(float64(x.w.bytes))
	if len(x.tries) > 0 {
		a := x.try()
		s.response.Observe(a.total.Seconds())
		s.connect.Observe(time.Duration(a.connect.Load()).Seconds())
		s.header.Observe(time.Duration(a.header.Load()).Seconds())
	}
}

func (m *metrics) series(x *exchange) *series {
	key := seriesKey{route: x.route, method: methodLabel(x.r.Method), status: x.w.status}
	if s, ok := x.state.series.Load(key); ok {
		return s.(*series)
	}
	l := labelsOf(x.route)
	m.mu.Lock()
	m.used[l] = true
	m.mu.Unlock()
	v := []string{l.host, l.path, l.namespace, l.ingress, l.service, "", key.method, strconv.Itoa(key.status)}
	s := &series{
		requests: m.requests.WithLabelValues(v...), duration: m.duration.WithLabelValues(v...), response: m.response.WithLabelValues(v...),
		connect: m.connect.WithLabelValues(v...), header: m.header.WithLabelValues(v...),
		reqSize: m.requestSize.WithLabelValues(v...), respSize: m.responseSize.WithLabelValues(v...),
	}
	x.state.series.Store(key, s)
	return s
}

// labelsOf names rules, never what a client sent, so their number is bounded.
func labelsOf(r *ingress.Route) seriesLabels {
	if r == nil {
		return seriesLabels{host: "_"}
	}
	l := seriesLabels{host: r.Host, path: r.Path, namespace: r.Ingress.Namespace, ingress: r.Ingress.Name, service: r.Backend.Service.Name}
	if l.host == "" {
		l.host = "_"
	}
	return l
}

// table notes a new Table and forgets the series of routes that are gone.
func (m *metrics) table(t *ingress.Table) {
	m.ready.Store(true)
	m.reloadSuccess.Set(1)
	m.reloadTime.SetToCurrentTime()
	m.expiry.Reset()
	t.TLSHosts(func(host string, c *ingress.Certificate) {
		m.expiry.WithLabelValues(host, c.Secret.Namespace, c.Secret.Name).Set(float64(c.TLS.Leaf.NotAfter.Unix()))
	})
	live := map[seriesLabels]bool{labelsOf(nil): true}
	t.Routes(func(r *ingress.Route) { live[labelsOf(r)] = true })
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.used {
		if !live[l] {
			m.forget(l)
			delete(m.used, l)
		}
	}
}

func (m *metrics) forget(l seriesLabels) {
	match := prometheus.Labels{"host": l.host, "path": l.path, "namespace": l.namespace, "ingress": l.ingress, "service": l.service}
	m.requests.DeletePartialMatch(match)
	for _, v := range []*prometheus.HistogramVec{m.duration, m.response, m.connect, m.header, m.requestSize, m.responseSize} {
		v.DeletePartialMatch(match)
	}
}

func (m *metrics) connState(_ net.Conn, state std.ConnState) {
	switch state {
	case std.StateNew:
		m.accepted.Inc()
		m.active.Inc()
	case std.StateClosed, std.StateHijacked:
		m.active.Dec()
	}
}
