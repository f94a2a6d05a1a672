package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"fairway/model"

	"k8s.io/client-go/rest"
)

// miniServer answers empty lists, watches that stay silent, and 403 for the kinds told.
// It is an old one, without the kind servicecidrs.
type miniServer struct {
	mu     sync.Mutex
	forbid map[string]bool
}

func (m *miniServer) set(kinds ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forbid = map[string]bool{}
	for _, k := range kinds {
		m.forbid[k] = true
	}
}

func (m *miniServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := path.Base(r.URL.Path)
	m.mu.Lock()
	no := m.forbid[kind]
	m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case no:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"cannot list resource %s"}`, kind)
	case kind == "servicecidrs":
		http.NotFound(w, r)
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		gv := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/")
		names := map[string]string{"services": "Service", "endpointslices": "EndpointSlice", "nodes": "Node", "namespaces": "Namespace",
			"ingresses": "Ingress", "ingressclasses": "IngressClass", "ipaddresspools": "IPAddressPool", "l2advertisements": "L2Advertisement"}
		fmt.Fprintf(w, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"1"},"items":[]}`, names[kind], gv)
	}
}

// TestForbiddenKind: without the permission for what one role needs the others work, and
// it is told; without what all need nothing is delivered.
func TestForbiddenKind(t *testing.T) {
	m := &miniServer{}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close) // after the clients are gone, for which it waits
	run := func(forbid ...string) chan []model.Problem {
		m.set(forbid...)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		a := &API{Config: &rest.Config{Host: srv.URL}, patience: 100 * time.Millisecond,
			Kinds: Kinds{Namespaces: true, Ingresses: true, Pools: true}}
		got := make(chan []model.Problem, 100)
		go a.Run(ctx, func(_ model.Objects, p []model.Problem) { got <- p }) //nolint:errcheck // ends with the test
		return got
	}
	got := run("ingresses", "ipaddresspools")
	seen := map[string]bool{}
	for deadline := time.After(15 * time.Second); !seen["ingresses"] || !seen["ipaddresspools"]; {
		select {
		case problems := <-got:
			for _, p := range problems {
				seen[p.Object.Name.Name] = p.Reason == "Forbidden"
			}
		case <-deadline:
			t.Fatalf("delivered and told of %v only", seen)
		}
	}
	m.set()
	for deadline := time.After(40 * time.Second); !seen["granted"]; {
		select {
		case problems := <-got:
			seen["granted"] = len(problems) == 0
		case <-deadline:
			t.Fatal("granted again, but the Problem stays")
		}
	}
	got = run("endpointslices")
	select {
	case <-got:
		t.Fatal("delivered without EndpointSlices: every Service would lose its endpoints")
	case <-time.After(3 * time.Second):
	}
}
