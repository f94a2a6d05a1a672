package http_test

import (
	"context"
	"fmt"
	"io"
	std "net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairway/server/http"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func intOrString(p uint16) intstr.IntOrString { return intstr.FromInt32(int32(p)) }

// Clients over HTTP/1.1 and HTTP/2 must not notice tables, certificates and endpoints
// changing under them.
func TestSwapUnderLoad(t *testing.T) {
	w := newWorld(t, nil)
	var pods []netip.AddrPort
	for i := range 4 {
		pods = append(pods, w.pod(fmt.Sprintf("10.0.20.%d", i+1), nil))
	}
	w.service("echo", pods...)
	trust := w.secure(w.route("a.x", "/", "echo", "ssl-redirect", "false"), "tls", "a.x")
	w.apply()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var done, failed atomic.Int64
	load := func(url string) {
		c := w.client(trust)
		for ctx.Err() == nil {
			resp, err := c.Post(url, "text/plain", strings.NewReader("payload"))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if err != nil || resp.StatusCode != 200 {
				failed.Add(1)
				t.Logf("%s: %v %v", url, err, resp)
			}
			done.Add(1)
		}
	}
	for range 3 {
		wg.Go(func() { load("http://a.x/") })
		wg.Go(func() { load("https://a.x/") })
	}
	for i := range 1000 {
		w.endpoints("echo", pods[i%4], pods[(i+1)%4])
		if i%10 == 0 {
			w.route(fmt.Sprintf("new-%d.x", i), "/", "echo")
		}
		if i%100 == 0 {
			again := slices.Clone(w.objects.Secrets)
			copied := *again[0]
			again[0] = &copied // the same bytes in a new object: parsed and swapped
			w.objects.Secrets = again
		}
		w.apply()
		time.Sleep(2 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	t.Logf("%d requests during 1000 tables, %d failed", done.Load(), failed.Load())
	if failed.Load() > 0 || done.Load() < 100 {
		t.Errorf("%d of %d failed", failed.Load(), done.Load())
	}
}

// A request that runs when the server is told to end gets its whole answer.
func TestDrain(t *testing.T) {
	w := newWorld(t, func(c *http.Config) { c.LameDuck = 300 * time.Millisecond })
	entered := make(chan struct{})
	w.service("slow", w.pod("10.0.21.1", std.HandlerFunc(func(rw std.ResponseWriter, r *std.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			time.Sleep(700 * time.Millisecond)
		}
		fmt.Fprint(rw, "whole")
	})))
	w.route("a.x", "/", "slow")
	w.apply()
	got := make(chan string, 1)
	go func() {
		_, body := w.get(w.client(), "http://a.x/slow")
		got <- body
	}()
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	time.Sleep(100 * time.Millisecond)
	resp, body := w.get(w.client(), "http://a.x/") // still in its lame-duck time
	if body != "whole" || !resp.Close {
		t.Errorf("while draining: %q, close %v", body, resp.Close)
	}
	if body := <-got; body != "whole" {
		t.Errorf("the running request got %q", body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := w.client().Get("http://a.x/"); err == nil {
		t.Error("still listening after the end")
	}
}

// Two servers on one address, the old one draining: nobody is refused.
func TestHandover(t *testing.T) {
	var addr netip.AddrPort
	share := func(c *http.Config) {
		c.ReusePort = true
		if addr.IsValid() {
			c.HTTP = []netip.AddrPort{addr}
		}
	}
	old := newWorld(t, share)
	pod := old.pod("10.0.22.1", nil)
	addr = netip.MustParseAddrPort(old.http)
	next := newWorld(t, share)
	for _, w := range []*world{old, next} {
		w.service("echo", pod)
		w.route("a.x", "/", "echo")
		w.apply()
	}
	if err := old.stop(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if resp, _ := next.get(next.client(), "http://a.x/"); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
}

func TestAccessLog(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.23.1", nil))
	w.route("a.x", "/", "echo")
	w.apply()
	w.raw("GET /x?q=\"1\" HTTP/1.1\r\nHost: a.x\r\nUser-Agent: test \"\\ \xff\r\nReferer: http://r/\r\nX-Request-Id: id-1\r\nConnection: close\r\n\r\n")
	w.raw("GET / HTTP/1.1\r\nHost: nowhere.x\r\nX-Request-Id: bad id\r\nConnection: close\r\n\r\n")
	if err := w.stop(); err != nil { // the line is written after the answer
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
	want := []string{
		`^127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET /x\?q=\\x221\\x22 HTTP/1\.1" 200 \d+ "http://r/" "test \\x22\\x5C \\xFF" \d+ \d+\.\d{3} ` +
			`\[default-echo-80\] \[\] 10\.0\.23\.1:\d+ \d+ \d+\.\d{3} 200 id-1$`,
		`^127\.0\.0\.1 - - \[[^]]+\] "GET / HTTP/1\.1" 404 21 "-" "-" \d+ \d+\.\d{3} \[upstream-default-backend\] \[\] - - - - [0-9a-f]{32}$`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), w.log)
	}
	for i, re := range want {
		if !regexp.MustCompile(re).MatchString(lines[i]) {
			t.Errorf("line %d is\n%s", i, lines[i])
		}
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.24.1", nil))
	w.secure(w.route("a.x", "/app", "echo", "ssl-redirect", "false"), "tls", "a.x")
	w.apply()
	c := w.client()
	w.get(c, "http://a.x/app/one")
	w.get(c, "http://a.x/app/two")
	w.get(c, "http://anything.x/")
	c.CloseIdleConnections()
	eventually(t, func() bool { return w.requests(map[string]string{"host": "_", "status": "404"}) == 1 })
	ours := map[string]string{"host": "a.x", "path": "/app", "namespace": "default", "ingress": "ing-0", "service": "echo", "method": "GET", "status": "200", "canary": ""}
	if n := w.requests(ours); n != 2 {
		t.Errorf("%v requests counted", n)
	}
	names := map[string]bool{}
	families, _ := w.registry.Gather()
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, n := range []string{"requests", "request_duration_seconds", "response_duration_seconds", "connect_duration_seconds", "header_duration_seconds",
		"request_size", "response_size", "config_last_reload_successful", "ssl_expire_time_seconds", "nginx_process_connections"} {
		if !names["nginx_ingress_controller_"+n] {
			t.Errorf("metric %s is missing", n)
		}
	}
	w.objects.Ingresses = nil
	w.apply()
	if n := w.requests(ours); n != 0 {
		t.Errorf("the series of a route that is gone still says %v", n)
	}
}

func (w *world) requests(labels map[string]string) float64 {
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var n float64
	for _, f := range families {
		if f.GetName() != "nginx_ingress_controller_requests" {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func hasLabels(m *dto.Metric, want map[string]string) bool {
	n := 0
	for _, l := range m.GetLabel() {
		if v, ok := want[l.GetName()]; ok && v == l.GetValue() {
			n++
		}
	}
	return n == len(want)
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for range 100 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("it did not happen within 2 s")
}

// A server that ended, by a fault or because it was told to, serves again.
func TestServeAgain(t *testing.T) {
	cfg := http.Default()
	cfg.HTTP = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	cfg.DrainTimeout = time.Second
	srv := http.New(cfg)
	for round := range 2 {
		if err := srv.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		plain, _ := srv.Addrs()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- srv.Serve(ctx) }()
		resp, err := std.Get("http://" + plain[0].String() + "/")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 || resp.Close {
			t.Errorf("round %d: status %d, connection closed %v, want 404 and kept", round, resp.StatusCode, resp.Close)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
