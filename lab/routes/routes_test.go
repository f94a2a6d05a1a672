package routes

import (
	"net/netip"
	"os"
	"testing"

	"fairway/lab/fabric"
	"fairway/lab/netspace"
	"fairway/lab/topology"

	"github.com/vishvananda/netlink"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name string, ips, ranges []string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: ranges}}
	for _, ip := range ips {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return n
}

func TestPlanPairsRangesWithAddressesOfTheirFamily(t *testing.T) {
	want := Plan([]*v1.Node{
		node("node1", []string{"172.30.0.11"}, []string{"10.244.0.0/24"}),
		node("node2", []string{"172.30.0.12", "fd00:30::12"}, []string{"10.244.1.0/24", "fd00:244:0:1::/64"}),
		node("node3", []string{"172.30.0.13"}, []string{"fd00:244:0:2::/64", "nonsense"}),
		node("node4", nil, []string{"10.244.3.0/24"}),
	}, "node1")
	if len(want) != 2 ||
		want[netip.MustParsePrefix("10.244.1.0/24")] != netip.MustParseAddr("172.30.0.12") ||
		want[netip.MustParsePrefix("fd00:244:0:1::/64")] != netip.MustParseAddr("fd00:30::12") {
		t.Errorf("got %v", want)
	}
}

// TestApplyFollowsAChange gives a Pod range to another node, takes one away
// and leaves alone what is not ours.
func TestApplyFollowsAChange(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("FAIRWAY_REQUIRE_LAB") == "1" {
			t.Fatal("network namespaces need root")
		}
		t.Skip("network namespaces need root")
	}
	s, err := fabric.Build(topology.Dual)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, b := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:244:0:1::/64")
	hop := netip.MustParseAddr
	for _, want := range []Want{
		{a: hop("172.30.0.12"), b: hop("fd00:30::12")},
		{a: hop("172.30.0.13"), b: hop("fd00:30::12")},
		{b: hop("fd00:30::12")},
		{},
	} {
		for range 2 { // the second time must change nothing and find nothing wrong
			err := netspace.Do(s.Client, func() error { return apply(want) })
			if err != nil {
				t.Fatalf("apply %v: %v", want, err)
			}
		}
		if got := listed(t, s.Client); len(got) != len(want) || got[a] != want[a] || got[b] != want[b] {
			t.Errorf("kernel has %v, want %v", got, want)
		}
	}
}

func listed(t *testing.T, ns *os.File) Want {
	t.Helper()
	got := Want{}
	err := netspace.Do(ns, func() error {
		have, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: Protocol}, netlink.RT_FILTER_PROTOCOL)
		for _, r := range have {
			prefix, via := parse(r)
			got[prefix] = via
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
