package admin

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestFlood: of clients that hold their connections there are only so many at once, and
// the next is served when they have said nothing for a while.
func TestFlood(t *testing.T) {
	const more = 40
	addr := freePort(t)
	bound := make(chan struct{})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { plain(w, "ok") })
	go func() { done <- ServeOnce(ctx, addr, ok, func() { close(bound) }) }()
	<-bound
	start := time.Now()
	var waiting []*bufio.Reader
	for i := range mostConns + more {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(start.Add(4 * idleTimeout))
		r := bufio.NewReader(c)
		if i >= mostConns {
			waiting = append(waiting, r)
			continue
		}
		if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("connection %d: %q %v", i, line, err)
		}
	}
	for i, r := range waiting {
		line, err := r.ReadString('\n')
		if err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("connection %d: %q %v", mostConns+i, line, err)
		}
		if early := idleTimeout - time.Second; i == 0 && time.Since(start) < early {
			t.Errorf("connection %d was served after %v, beside %d others", mostConns, time.Since(start), mostConns)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
