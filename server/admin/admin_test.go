package admin

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"

	"github.com/prometheus/client_golang/prometheus"
)

// ask sends one request; body, if any, by PUT.
func ask(h http.Handler, path string, body ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", path, nil)
	if len(body) > 0 {
		r = httptest.NewRequest("PUT", path, strings.NewReader(body[0]))
	}
	h.ServeHTTP(w, r)
	return w
}

func TestHealth(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := NewHealth(time.Minute, func() time.Time { return now }, "IPv4", "IPv6")
	check := func(when, path string, code int, body string) {
		t.Helper()
		w := ask(h.HealthHandler(), path)
		if w.Code != code || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s answers %d %v, want %d", when, path, w.Code, w.Header(), code)
		}
		if body != "" && w.Body.String() != body {
			t.Errorf("%s: %s says\n%s\nwant\n%s", when, path, w.Body, body)
		}
	}
	check("before the first sync", "/healthz", 503, `{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-01-02T03:04:05Z","nodeEligible":true,"healthy":false}`)
	check("before the first sync", "/livez", 200, "")
	h.Applied()
	now = now.Add(time.Hour)
	const both = `"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true}}}`
	check("idle for an hour", "/healthz", 200, `{"lastUpdated":"2026-01-02T04:04:05Z","currentTime":"2026-01-02T04:04:05Z","nodeEligible":true,"healthy":true,`+both)
	check("idle for an hour", "/livez", 200, `{"lastUpdated":"2026-01-02T04:04:05Z","currentTime":"2026-01-02T04:04:05Z","healthy":true,`+both)
	h.Queued()
	now = now.Add(59 * time.Second)
	check("a change waits 59 s", "/healthz", 200, "")
	now = now.Add(time.Second)
	check("a change waits 60 s", "/livez", 503, `{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T04:05:05Z","healthy":false,`+strings.ReplaceAll(both, "true", "false"))
	h.Applied()
	h.Leaving(true)
	check("node leaves", "/healthz", 503, "")
	check("node leaves", "/livez", 200, "")
	h.Leaving(false)
	check("node stays", "/healthz", 200, "")
}

func TestHealthPorts(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	healthy := true
	h := &HealthPorts{Healthy: func() bool { return healthy }}
	c := proxy.HealthCheck{Service: model.Name{Namespace: "ns", Name: "svc"}, Port: 32199, LocalReady: 2}
	here := []netip.Addr{netip.MustParseAddr("127.0.0.3")}
	h.Set(ctx, []proxy.HealthCheck{c}, here)
	check := func(when string, code int, weight, body string) {
		t.Helper()
		w := ask(h.handler(32199), "/")
		if w.Code != code || w.Body.String() != body || w.Header().Get("X-Load-Balancing-Endpoint-Weight") != weight ||
			w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v\n%s\nwant %d, weight %s\n%s", when, w.Code, w.Header(), w.Body, code, weight, body)
		}
	}
	const two = "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"svc\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}"
	check("two local endpoints", 200, "2", two)
	healthy = false
	check("unhealthy proxy", 503, "2", strings.Replace(two, "true", "false", 1))
	healthy, c.LocalReady = true, 0
	h.Set(ctx, []proxy.HealthCheck{c}, here)
	check("no local endpoint", 503, "0", strings.Replace(two, "2", "0", 1))
	for range 100 { // it really listens, and only there
		resp, err := http.Get("http://127.0.0.3:32199/")
		if err == nil {
			resp.Body.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if resp, err := http.Get("http://127.0.0.3:32199/"); err != nil || resp.StatusCode != 503 {
		t.Errorf("over the wire: %v %v", resp, err)
	}
	if _, err := net.DialTimeout("tcp", "127.0.0.4:32199", time.Second); err == nil {
		t.Error("it listens on an address nobody asked for")
	}
	h.Set(ctx, nil, here)
	if w := ask(h.handler(32199), "/"); w.Code != http.StatusNotFound {
		t.Errorf("no such port any more: %d, want 404", w.Code)
	}
}

// TestHealthPortTaken: a port somebody else holds is a failure until they let go.
func TestHealthPortTaken(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	taken, err := net.Listen("tcp", "127.0.0.5:32198")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 4)
	h := &HealthPorts{Healthy: func() bool { return true }, Failed: func(_ proxy.HealthCheck, err error) { told <- err }}
	h.Set(ctx, []proxy.HealthCheck{{Port: 32198}}, []netip.Addr{netip.MustParseAddr("127.0.0.5")})
	if err := <-told; err == nil || !strings.Contains(err.Error(), "address already in use") || len(h.Failures()) != 1 {
		t.Errorf("the port is taken: told %v, failures %v", err, h.Failures())
	}
	taken.Close()
	if err := <-told; err != nil || len(h.Failures()) != 0 {
		t.Errorf("the port is free again: told %v, failures %v", err, h.Failures())
	}
}

func testMetrics() *Metrics {
	return &Metrics{Registry: prometheus.NewRegistry(), Mode: func() string { return "iptables" }, Ready: func() error { return nil },
		Config: map[string]any{"kubeproxy.config.k8s.io": map[string]string{"kind": "KubeProxyConfiguration"}},
		Flags:  map[string]string{"v": "2", "config": "/x"}, Profile: true,
		Status: &Status{Started: time.Unix(0, 0).UTC(), Version: "v9", Emulates: "1.37", Now: func() time.Time { return time.Unix(3723, 0) }}}
}

// TestPages: paths, codes, types and bodies of :10249, as kube-proxy has them.
func TestPages(t *testing.T) {
	m := testMetrics()
	var level uint32
	m.SetVerbosity = func(n uint32) { level = n }
	h := m.Handler()
	const text = "text/plain; charset=utf-8"
	for _, c := range []struct{ path, put, kind, body string }{
		{"/proxyMode", "", text, "iptables"},
		{"/healthz", "", text, "ok"},
		{"/healthz?verbose", "", text, "[+]ping ok\nhealthz check passed\n"},
		{"/configz", "", "application/json", `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`},
		{"/debug/flags/v", "4", "text/plain", "successfully set klog.logging.verbosity to 4\n"},
		{"/flagz", "", text, "\nkube-proxy flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\nconfig=/x\nv=2\n"},
	} {
		w := ask(h, c.path)
		if c.put != "" {
			w = ask(h, c.path, c.put)
		}
		if w.Code != 200 || w.Header().Get("Content-Type") != c.kind || w.Body.String() != c.body {
			t.Errorf("%s: %d %s %q, want %s %q", c.path, w.Code, w.Header().Get("Content-Type"), w.Body, c.kind, c.body)
		}
	}
	if level != 4 {
		t.Errorf("verbosity is %d, want 4", level)
	}
	if w := ask(h, "/debug/flags/v", "x"); w.Code != http.StatusBadRequest {
		t.Errorf("a verbosity that is no number: %d", w.Code)
	}
	if w := ask(h, "/debug/flags/v"); w.Code != http.StatusNotAcceptable || w.Body.String() != "unsupported http method\n" {
		t.Errorf("reading the verbosity: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/symbol"} {
		if w := ask(h, path); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	slis := ask(h, "/metrics/slis").Body.String()
	for _, line := range []string{`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`} {
		if !strings.Contains(slis, line) {
			t.Errorf("/metrics/slis lacks %s:\n%s", line, slis)
		}
	}
	status := ask(h, "/statusz").Body.String()
	for _, line := range []string{"Up: 1 hr 02 min 03 sec", "Binary version: v9", "Emulation version: 1.37", "Paths: /configz /flagz /healthz /metrics /proxyMode"} {
		if !strings.Contains(status, line) {
			t.Errorf("/statusz lacks %q:\n%s", line, status)
		}
	}
	m = testMetrics()
	m.Profile, m.Flags, m.Status = false, nil, nil
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v", "/flagz", "/statusz", "/nothing"} {
		if w := ask(m.Handler(), path); w.Code != 404 {
			t.Errorf("%s, off: %d", path, w.Code)
		}
	}
}

// TestObjects: the two pages are objects for who asks for one.
func TestObjects(t *testing.T) {
	for _, name := range []string{"Flagz", "Statusz"} {
		r := httptest.NewRequest("GET", "/"+strings.ToLower(name), nil)
		r.Header.Set("Accept", "application/json;v=v1beta1;g=config.k8s.io;as="+name)
		w := httptest.NewRecorder()
		testMetrics().Handler().ServeHTTP(w, r)
		var o struct{ Kind, APIVersion string }
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || o.Kind != name || o.APIVersion != "config.k8s.io/v1beta1" {
			t.Errorf("%s: %v %s", name, err, w.Body)
		}
	}
}

// TestMetricNames: every mode has kube-proxy 1.37's metrics of it, with their labels.
func TestMetricNames(t *testing.T) {
	const p = "kubeproxy_sync_proxy_rules_"
	common := []string{p + "duration_seconds{ip_family}", p + "last_queued_timestamp_seconds{ip_family}", p + "last_timestamp_seconds{ip_family}",
		p + "endpoint_changes_pending{}", p + "endpoint_changes_total{}", p + "service_changes_pending{}", p + "service_changes_total{}",
		"kubeproxy_proxy_healthz_total{code}", "kubeproxy_proxy_livez_total{code}", "kubeproxy_network_programming_duration_seconds{ip_family}",
		p + "no_local_endpoints_total{ip_family,traffic_policy}",
		"kubeproxy_conntrack_reconciler_sync_duration_seconds{ip_family}", "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family}"}
	both := []string{"kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family}", "kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family}"}
	for mode, own := range map[string][]string{
		"iptables": append(both, p+"iptables_restore_failures_total{ip_family}", p+"iptables_partial_restore_failures_total{ip_family}"),
		"ipvs":     {p + "iptables_restore_failures_total{ip_family}"},
		"nftables": append(both, p+"nftables_sync_failures_total{ip_family}", p+"nftables_cleanup_failures_total{ip_family}"),
		"ebpf":     {"fairway_sync_failures_total{ip_family}"},
	} {
		got := seen(t, mode)
		want := slices.Concat(common, own)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", mode, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

// seen uses every metric once, and lists those of a node proxy with their labels.
func seen(t *testing.T, mode string) []string {
	t.Helper()
	reg := prometheus.NewRegistry()
	h := NewHealth(time.Minute, time.Now, "IPv4", "IPv6")
	o := NewObserver(reg, h, mode)
	ask(h.HealthHandler(), "/healthz")
	ask(h.HealthHandler(), "/livez")
	o.Queued()
	o.Changed(1, 2, 1, 2)
	for _, full := range []bool{true, false} {
		o.Applied(time.Second, &proxy.Plan{}, full)
		o.Failed(nil, full)
	}
	o.Programmed(true, time.Second)
	o.Flows(true, 3, time.Second)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "kubeproxy_") && f.GetName() != "fairway_sync_failures_total" {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out = append(out, f.GetName()+"{"+strings.Join(labels, ",")+"}")
	}
	slices.Sort(out)
	return out
}

func TestServiceCounts(t *testing.T) {
	key := func(v6 bool) proxy.Key {
		return proxy.Key{Service: model.Name{Namespace: "shop", Name: "web"}, PortName: "http", Proto: packet.TCP, IPv6: v6}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewServiceCounts(func(context.Context) ([]proxy.Count, error) {
		return []proxy.Count{{Key: key(false), Connections: 2, Measured: true, BytesIn: 10, BytesOut: 20}, {Key: key(true), Connections: 3}}, nil
	}))
	m := testMetrics()
	m.Registry = reg
	text := ask(m.Handler(), "/metrics").Body.String()
	for _, line := range []string{
		`fairway_service_connections_total{namespace="shop",port="http",protocol="TCP",service="web"} 5`,
		`fairway_service_bytes_total{direction="in",namespace="shop",port="http",protocol="TCP",service="web"} 10`,
		`fairway_service_bytes_total{direction="out",namespace="shop",port="http",protocol="TCP",service="web"} 20`,
		`fairway_service_counters_incomplete 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("lacks %s:\n%s", line, text)
		}
	}
}
