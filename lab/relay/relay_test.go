package relay

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestServeCarriesBothDirectionsAndTheirEnds sends a request that ends before
// the answer begins, through the namespace the test runs in.
func TestServeCarriesBothDirectionsAndTheirEnds(t *testing.T) {
	ns, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if os.Geteuid() != 0 {
		t.Skip("entering a network namespace needs root")
	}
	far := listen(t)
	go func() {
		c, err := far.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		_, _ = c.Write(append([]byte("got "), all...))
	}()
	near := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, near, ns, func(context.Context) string { return far.Addr().String() })
	}()
	c, err := net.Dial("tcp", near.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, "all of it")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "got all of it" {
		t.Errorf("read %q, %v", got, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
