package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairway/model"
	"fairway/proxy"
)

func TestHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	h := NewHealth(time.Minute, func() time.Time { return now })
	code := func(path string) int {
		w := httptest.NewRecorder()
		h.HealthHandler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	check := func(when, path string, want int) {
		t.Helper()
		if got := code(path); got != want {
			t.Errorf("%s: %s answers %d, want %d", when, path, got, want)
		}
	}
	check("before the first sync", "/healthz", 503)
	h.Applied()
	check("synced", "/healthz", 200)
	now = now.Add(time.Hour)
	check("idle for an hour", "/healthz", 200)
	h.Queued()
	now = now.Add(59 * time.Second)
	check("a change waits 59 s", "/healthz", 200)
	now = now.Add(2 * time.Second)
	check("a change waits 61 s", "/livez", 503)
	h.Applied()
	h.Leaving(true)
	check("node leaves", "/healthz", 503)
	check("node leaves", "/livez", 200)
}

func TestHealthPorts(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	healthy := true
	h := &HealthPorts{Healthy: func() bool { return healthy }}
	c := proxy.HealthCheck{Service: model.Name{Namespace: "ns", Name: "svc"}, Port: 32199, LocalReady: 2}
	h.Set(ctx, []proxy.HealthCheck{c})
	get := func() (int, string, map[string]any) {
		w := httptest.NewRecorder()
		h.handler(32199).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		var body map[string]any
		json.Unmarshal(w.Body.Bytes(), &body)
		return w.Code, w.Header().Get("X-Load-Balancing-Endpoint-Weight"), body
	}
	if code, weight, body := get(); code != 200 || weight != "2" || body["localEndpoints"] != 2.0 || body["serviceProxyHealthy"] != true {
		t.Errorf("two local endpoints: %d weight %s %v", code, weight, body)
	}
	c.LocalReady = 0
	h.Set(ctx, []proxy.HealthCheck{c})
	if code, _, _ := get(); code != 503 {
		t.Errorf("no local endpoint: %d, want 503", code)
	}
	h.Set(ctx, nil)
	if code, _, _ := get(); code != http.StatusNotFound {
		t.Errorf("no such port any more: %d, want 404", code)
	}
}
