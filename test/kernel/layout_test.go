package kernel_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"
)

// newLab lays out what a plan and its packets speak of, with a server on every
// endpoint.
func newLab(t *testing.T, plan *proxy.Plan, packets []packet.Packet) *netlab.Lab {
	t.Helper()
	l := &layout{plan: plan}
	for _, a := range append(slices.Clone(plan.Config.NodeIPs), plan.Config.LocalAddrs...) {
		if !a.IsLoopback() {
			l.add(&l.NodeAddrs, a)
		}
	}
	for _, sp := range plan.Ports {
		for _, e := range slices.Concat(sp.Cluster, sp.Local) {
			if e.OnNode {
				l.pod(e.Addr.Addr(), "")
			} else {
				l.add(&l.Remote, e.Addr.Addr())
			}
		}
	}
	for _, p := range packets {
		l.source(p)
	}
	// The node's default route leads to the first client of a family.
	for _, a := range []string{"203.0.113.250", "2001:db8:113::250"} {
		l.add(&l.Clients, netip.MustParseAddr(a))
	}
	lab, err := netlab.New(l.Layout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Close)
	if err := lab.ServeAll(plan); err != nil {
		t.Fatal(err)
	}
	return lab
}

type layout struct {
	netlab.Layout
	plan  *proxy.Plan
	known []netip.Addr
}

func (l *layout) add(to *[]netip.Addr, a netip.Addr) {
	if !slices.Contains(l.known, a) {
		l.known = append(l.known, a)
		*to = append(*to, a)
	}
}

func (l *layout) pod(a netip.Addr, iface string) {
	if !slices.Contains(l.known, a) {
		l.known = append(l.known, a)
		l.Pods = append(l.Pods, netlab.Pod{Addrs: []netip.Addr{a}, Iface: iface})
	}
}

// source puts a packet's sender where the packet says it comes from. A frontend's own
// address can send nothing.
func (l *layout) source(p packet.Packet) {
	if p.Local || p.Src.IsLoopback() {
		return
	}
	for _, sp := range l.plan.Ports {
		if sp.ClusterIP == p.Src || slices.Contains(sp.LoadBalancerIPs, p.Src) || slices.Contains(sp.ExternalIPs, p.Src) {
			return
		}
	}
	if l.plan.Config.Detector.Local(p) {
		l.pod(p.Src, p.In)
		return
	}
	l.add(&l.Clients, p.Src)
}

func emptySnapshot() *model.Snapshot {
	snap, _ := model.Build(nil, model.Objects{})
	return snap
}
