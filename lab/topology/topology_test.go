package topology

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesDoNotCollide(t *testing.T) {
	seen := map[netip.Addr]string{}
	add := func(who string, addrs []netip.Addr) {
		for _, a := range addrs {
			if other, dup := seen[a]; dup {
				t.Errorf("%s and %s share %s", who, other, a)
			}
			seen[a] = who
		}
	}
	add("fabric", Dual.Fabric())
	add("client", Dual.Client())
	add("router", Dual.Router())
	for n := 1; n <= MaxNodes; n++ {
		add(NodeName(n), Dual.Node(n))
	}
	lan := netip.MustParsePrefix("172.30.0.0/24")
	pool := netip.MustParseAddr("172.30.0.100")
	for a, who := range seen {
		if a.Is4() && !lan.Contains(a) {
			t.Errorf("%s: %s is outside the LAN", who, a)
		}
		if a.Is4() && strings.HasPrefix(who, "node") && !a.Less(pool) {
			t.Errorf("%s: %s is inside the LoadBalancer pool", who, a)
		}
	}
}

func TestFamilies(t *testing.T) {
	for _, tc := range []struct {
		family               Family
		node2, url, services string
	}{
		{IPv4, "172.30.0.12", "https://172.30.0.1:6443", "10.96.0.0/16"},
		{IPv6, "fd00:30::12", "https://[fd00:30::1]:6443", "fd00:96::/112"},
		{Dual, "172.30.0.12,fd00:30::12", "https://172.30.0.1:6443", "10.96.0.0/16,fd00:96::/112"},
	} {
		if got := Join(tc.family.Node(2)); got != tc.node2 {
			t.Errorf("%s node2: %s, want %s", tc.family, got, tc.node2)
		}
		if got := tc.family.ServerURL(); got != tc.url {
			t.Errorf("%s URL: %s, want %s", tc.family, got, tc.url)
		}
		if got := tc.family.ServiceRange(); got != tc.services {
			t.Errorf("%s services: %s, want %s", tc.family, got, tc.services)
		}
	}
	if _, err := ParseFamily("ipx"); err == nil {
		t.Error("ipx was accepted")
	}
}
