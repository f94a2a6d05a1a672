package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"fairway/model"

	"k8s.io/client-go/rest"
)

// TestSilentWatch: a watch that is open and says nothing is asked for anew, so that what
// changed meanwhile is seen; and while the server is away the age of what is known grows.
func TestSilentWatch(t *testing.T) {
	m := &miniServer{}
	m.set()
	var watches atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if path.Base(r.URL.Path) == "services" && q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
			if watches.Add(1) != 2 { // forgotten by somebody in between
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"late","namespace":"default","resourceVersion":"2","uid":"u"}}}`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		m.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	defer srv.Close()
	defer cancel()
	a := &API{Config: &rest.Config{Host: srv.URL}, silence: 300 * time.Millisecond}
	got := make(chan int, 100)
	go a.Run(ctx, func(o model.Objects, _ []model.Problem) { got <- len(o.Services) }) //nolint:errcheck // ends with the test
	for deadline := time.After(20 * time.Second); ; {
		select {
		case n := <-got:
			if n == 0 {
				continue
			}
		case <-deadline:
			t.Fatalf("the Service was never seen, in %d watches", watches.Load())
		}
		break
	}
	if kind, age := a.Age(); kind == "" || age > 5*time.Second {
		t.Errorf("%s was last heard of %s ago", kind, age)
	}
	opened := watches.Load()
	time.Sleep(time.Second)
	if _, age := a.Age(); age < 900*time.Millisecond || watches.Load() == opened {
		t.Errorf("%d watches were opened and said nothing, and the age is %s", watches.Load()-opened, age)
	}
	srv.CloseClientConnections()
	srv.Listener.Close()
	time.Sleep(time.Second)
	if _, age := a.Age(); age < 500*time.Millisecond {
		t.Errorf("the server is away, and the age is %s", age)
	}
}
