package kernel_test

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"testing"

	"fairway/kernel"
	"fairway/proxy"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDeleteFlows: of many flows in a namespace of its own exactly the stale ones go.
func TestDeleteFlows(t *testing.T) {
	inNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := netlink.ParseAddr("172.30.0.11/32")
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	vip, v6, node, far, past := "10.96.0.53", "fd00:96::53", "172.30.0.11", "192.0.2.9", "10.97.0.1"
	for row, f := range []struct {
		proto    uint8
		dst      string
		port     uint16
		endpoint string
		target   uint16
		n        int
	}{
		{unix.IPPROTO_UDP, vip, 53, "10.244.1.1", 5353, 3},     // kept
		{unix.IPPROTO_UDP, vip, 53, "10.244.1.2", 5353, 600},   // endpoint gone
		{unix.IPPROTO_UDP, vip, 53, "10.244.1.1", 9953, 4},     // target port changed
		{unix.IPPROTO_UDP, vip, 53, vip, 53, 5},                // begun before any endpoint
		{unix.IPPROTO_UDP, vip, 54, "10.244.1.2", 5353, 6},     // another port
		{unix.IPPROTO_TCP, vip, 53, "10.244.1.2", 5353, 7},     // TCP
		{unix.IPPROTO_UDP, node, 30053, "10.244.1.2", 5353, 8}, // NodePort here
		{unix.IPPROTO_UDP, far, 30053, far, 30053, 9},          // somebody else's port
		{unix.IPPROTO_UDP, v6, 53, "fd00:244::2", 5353, 10},    // IPv6
		{unix.IPPROTO_UDP, past, 514, "10.244.1.9", 514, 11},   // a Service nobody knows any more
		{unix.IPPROTO_UDP, past, 515, past, 515, 12},           // never led to an endpoint
	} {
		for i := range f.n {
			addFlow(t, f.proto, f.dst, f.port, f.endpoint, f.target, uint16(20000+row*1000+i))
		}
	}
	keep := []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:5353")}
	gone := []netip.AddrPort{netip.MustParseAddrPort("10.244.1.2:5353")}
	got, err := kernel.DeleteFlows(context.Background(), []proxy.Flow{
		{Dst: netip.MustParseAddrPort("10.96.0.53:53"), Keep: gone}, // two changes ago
		{Dst: netip.MustParseAddrPort("0.0.0.0:30053"), Keep: gone},
		{Dst: netip.MustParseAddrPort("10.96.0.53:53"), Keep: keep},
		{Dst: netip.MustParseAddrPort("0.0.0.0:30053")},
		{Dst: netip.MustParseAddrPort("[fd00:96::53]:53")},
		{Within: netip.MustParsePrefix("10.97.0.0/16")},
	})
	if want := 600 + 4 + 5 + 8 + 10 + 11; err != nil || got != want {
		t.Errorf("deleted %d, want %d (%v)", got, want, err)
	}
	left := 0
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			t.Fatal(err)
		}
		left += len(list)
	}
	if want := 3 + 6 + 7 + 9 + 12; left != want {
		t.Errorf("%d flows left, want %d", left, want)
	}
}

// addFlow puts a flow into conntrack as NAT would have made it.
func addFlow(t *testing.T, proto uint8, dst string, port uint16, endpoint string, target, from uint16) {
	t.Helper()
	client, family := net.ParseIP("192.0.2.1"), netlink.InetFamily(unix.AF_INET)
	if net.ParseIP(dst).To4() == nil {
		client, family = net.ParseIP("2001:db8::1"), unix.AF_INET6
	}
	ip := func(s string) net.IP { // of IPv4 in 4 bytes
		return netip.MustParseAddr(s).AsSlice()
	}
	if client.To4() != nil {
		client = client.To4()
	}
	flow := &netlink.ConntrackFlow{FamilyType: uint8(family), TimeOut: 300,
		Forward: netlink.IPTuple{Protocol: proto, SrcIP: client, DstIP: ip(dst), SrcPort: from, DstPort: port},
		Reverse: netlink.IPTuple{Protocol: proto, SrcIP: ip(endpoint), DstIP: client, SrcPort: target, DstPort: from},
	}
	if proto == unix.IPPROTO_TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: established}
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		t.Fatalf("adding a flow to %s:%d: %v", dst, port, err)
	}
}

// established is TCP_CONNTRACK_ESTABLISHED.
const established = 3

// TestForgetIPVS: what IPVS translated goes, in every protocol; what NAT translated, what
// nobody did and what goes to others stays.
func TestForgetIPVS(t *testing.T) {
	inNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	nft := exec.Command("nft", "add table ip t; add chain ip t o { type nat hook output priority -100; }; add rule ip t o udp dport 99 dnat to 127.0.0.1:100")
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := net.Dial("udp", "127.0.0.1:99")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	for i := range uint16(3) {
		addFlow(t, unix.IPPROTO_UDP, "10.96.0.53", 53, "10.244.1.2", 5353, 20000+i)
		addFlow(t, unix.IPPROTO_TCP, "10.96.0.80", 80, "10.244.1.2", 8080, 21000+i)
		addFlow(t, unix.IPPROTO_TCP, "fd00:96::80", 80, "fd00:244::2", 8080, 22000+i)
		addFlow(t, unix.IPPROTO_UDP, "10.96.0.53", 53, "10.96.0.53", 53, 23000+i)
		addFlow(t, unix.IPPROTO_TCP, "10.96.0.81", 80, "10.244.1.2", 8080, 24000+i)
	}
	others := map[netip.AddrPort]bool{netip.MustParseAddrPort("10.96.0.81:80"): true}
	n, err := kernel.LookIPVS(t.Context(), 0).Forget(t.Context(), others)
	if err != nil || n != 9 {
		t.Errorf("%d flows forgotten, want 9 (%v)", n, err)
	}
	list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(list) != 7 {
		t.Errorf("%d flows left, want 3 untranslated, 3 of others and 1 of NAT (%v)", len(list), err)
	}
}
