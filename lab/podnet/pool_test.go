package podnet

import (
	"net/netip"
	"testing"
)

func TestPoolInTurn(t *testing.T) {
	p := NewPool(netip.MustParsePrefix("10.244.1.0/29"))
	take := func(want string) netip.Addr {
		t.Helper()
		addr, err := p.Take()
		if err != nil || addr.String() != want {
			t.Fatalf("got %v, %v, want %s", addr, err, want)
		}
		return addr
	}
	first := take("10.244.1.2")
	take("10.244.1.3")
	p.Give(first)
	for _, want := range []string{"10.244.1.4", "10.244.1.5", "10.244.1.6", "10.244.1.2"} {
		take(want)
	}
	if addr, err := p.Take(); err == nil {
		t.Fatalf("full, got %v", addr)
	}
	p.Give(netip.MustParseAddr("10.244.1.5"))
	take("10.244.1.5")
}

func TestPoolEdges(t *testing.T) {
	for prefix, want := range map[string]int{"10.0.0.0/32": 0, "10.0.0.0/30": 1, "fd00::/126": 2, "10.244.1.0/24": 253} {
		p := NewPool(netip.MustParsePrefix(prefix))
		got := 0
		for range 300 {
			if _, err := p.Take(); err == nil {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d addresses, want %d", prefix, got, want)
		}
	}
}

func TestSetCIDRs(t *testing.T) {
	n := New(nil)
	if n.Ready() {
		t.Error("ready without a CIDR")
	}
	if err := n.SetCIDRs("10.244.1.0/24,nonsense"); err == nil || n.Ready() {
		t.Errorf("nonsense: %v", err)
	}
	if err := n.SetCIDRs("10.244.1.0/24, fd00:244:1::/64"); err != nil {
		t.Fatal(err)
	}
	ips, err := n.take()
	if err != nil || len(ips) != 2 || ips[0].String() != "10.244.1.2" || ips[1].String() != "fd00:244:1::2" {
		t.Errorf("%v, %v", ips, err)
	}
	if err := n.SetCIDRs("10.244.1.0/24, fd00:244:1::/64"); err != nil {
		t.Fatal(err)
	}
	if ips, err := n.take(); err != nil || ips[0].String() != "10.244.1.3" {
		t.Errorf("after the same CIDRs again: %v, %v", ips, err)
	}
}
