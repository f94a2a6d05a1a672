package fabric

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"fairway/lab/netspace"
	"fairway/lab/topology"
)

// TestHostsReachEachOther opens TCP connections between the client and two
// nodes over the LAN, in both families, and finds no way out.
func TestHostsReachEachOther(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("FAIRWAY_REQUIRE_LAB") == "1" {
			t.Fatal("network namespaces need root")
		}
		t.Skip("network namespaces need root")
	}
	s, err := Build(topology.Dual)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nodes := make([]*os.File, 2)
	for i := range nodes {
		if nodes[i], err = BuildNode(s.LAN, topology.Dual, i+1); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
	}
	for _, a := range topology.Dual.Node(2) {
		at := netip.AddrPortFrom(a, 80).String()
		serve(t, nodes[1], at)
		for who, ns := range map[string]*os.File{"client": s.Client, "router": s.Router, "node1": nodes[0], "fabric": s.LAN} {
			if err := dial(ns, at, 10*time.Second); err != nil {
				t.Errorf("%s to %s: %v", who, at, err)
			}
		}
	}
	if err := dial(s.Client, "8.8.8.8:53", 300*time.Millisecond); err == nil {
		t.Error("a packet left the lab")
	}
}

func serve(t *testing.T, ns *os.File, at string) {
	t.Helper()
	var l net.Listener
	err := netspace.Do(ns, func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	}()
}

func dial(ns *os.File, at string, limit time.Duration) error {
	return netspace.Do(ns, func() error {
		c, err := net.DialTimeout("tcp", at, limit)
		if err != nil {
			return err
		}
		defer c.Close()
		if got, err := io.ReadAll(c); string(got) != "hello" {
			return fmt.Errorf("read %q: %w", got, err)
		}
		return nil
	})
}
