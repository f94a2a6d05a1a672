package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// From is where a packet starts.
type From struct {
	Addrs     []netip.Addr
	Node      string // where its first rules are met; empty is any node
	Namespace string // of the Pod, for the DNS search list
	// Searches come behind the cluster's, of the Pod's own dnsConfig; NDots is its resolver's,
	// 0 for kubelet's.
	Searches []string
	NDots    int
	// Elsewhere says whom the Pod asks for names when it is not the cluster's DNS.
	Elsewhere string
	In        string // interface it enters the node by, when known
	Local     bool   // the node itself sends it

	text string
	pod  bool
}

func (f From) String() string { return f.text }

// Addr is the source address for a destination of a family.
func (f From) Addr(v6 bool) (netip.Addr, bool) {
	for _, a := range f.Addrs {
		if a.Is6() == v6 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// outside tells whether the packet starts on no Pod and no node.
func (f From) outside() bool { return !f.pod && !f.Local }

// ParseFrom reads ADDR, pod/NS/NAME, node/NAME or outside.
func ParseFrom(snap *model.Snapshot, s string) (From, error) {
	kind, name, _ := strings.Cut(s, "/")
	switch {
	case s == "outside":
		// Documentation addresses (RFC 5737, RFC 3849): nobody's, and in no pod range.
		return From{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}, text: "outside (203.0.113.1)"}, nil
	case kind == "pod":
		return fromPod(snap, name)
	case kind == "node":
		n := snap.Node(name)
		if n == nil {
			return From{}, fmt.Errorf("--from %s: no such Node among the objects", s)
		}
		return From{Addrs: n.InternalIPs, Node: n.Name, Local: true, text: fmt.Sprintf("node %s %v", n.Name, n.InternalIPs)}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return From{}, fmt.Errorf("--from %s: want ADDR, pod/NAMESPACE/NAME, node/NAME or outside", s)
	}
	return fromAddr(snap, a.Unmap()), nil
}

func fromPod(snap *model.Snapshot, name string) (From, error) {
	ns, pod, ok := strings.Cut(name, "/")
	if !ok {
		return From{}, fmt.Errorf("--from pod/%s: want pod/NAMESPACE/NAME", name)
	}
	p := snap.Pod(model.Name{Namespace: ns, Name: pod})
	if p == nil {
		return From{}, fmt.Errorf("--from pod/%s: no such Pod among the objects", name)
	}
	if len(p.IPs) == 0 {
		return From{}, fmt.Errorf("--from pod/%s: the Pod has no address yet", name)
	}
	f := From{Addrs: p.IPs, Node: p.Node, Namespace: ns, pod: !p.HostNetwork, Local: p.HostNetwork,
		text: fmt.Sprintf("pod %s/%s %v on node %s", ns, pod, p.IPs, p.Node)}
	f.resolver(snap, p)
	return f, nil
}

// resolver takes over what kubelet writes into the Pod's resolv.conf.
func (f *From) resolver(snap *model.Snapshot, p *model.Pod) {
	f.Searches, f.NDots = p.Searches, p.NDots
	switch {
	case p.DNSPolicy == "None":
		f.Namespace, f.NDots = "", max(p.NDots, 1) // resolv.conf(5)
		if !slices.ContainsFunc(p.Nameservers, func(a netip.Addr) bool { return clusterAddress(snap, a) }) {
			f.Elsewhere = fmt.Sprintf("dnsPolicy None: it asks its own nameservers %v, not the cluster's DNS", p.Nameservers)
		}
	case p.DNSPolicy == "Default":
		f.Namespace, f.Elsewhere = "", "dnsPolicy Default: it asks the node's resolvers, not the cluster's DNS; ClusterFirst would"
	case p.HostNetwork && p.DNSPolicy != "ClusterFirstWithHostNet":
		f.Namespace, f.Elsewhere = "", "hostNetwork with dnsPolicy ClusterFirst: kubelet gives it the node's resolvers, not the cluster's DNS; ClusterFirstWithHostNet would"
	}
}

func clusterAddress(snap *model.Snapshot, a netip.Addr) bool {
	return slices.ContainsFunc(snap.Services, func(s *model.Service) bool { return slices.Contains(s.ClusterIPs, a) })
}

// fromAddr recognises a Pod or a Node by its address.
func fromAddr(snap *model.Snapshot, a netip.Addr) From {
	f := From{Addrs: []netip.Addr{a}, text: a.String()}
	for _, p := range snap.Pods {
		for _, ip := range p.IPs {
			if ip == a && !p.HostNetwork {
				f.Node, f.Namespace, f.pod, f.text = p.Node, p.Name.Namespace, true, fmt.Sprintf("%s (pod %s)", a, p.Name)
				f.resolver(snap, p)
				return f
			}
		}
	}
	for _, n := range snap.Nodes {
		for _, ip := range n.InternalIPs {
			if ip == a {
				f.Node, f.Local, f.text = n.Name, true, fmt.Sprintf("%s (node %s)", a, n.Name)
				return f
			}
		}
		for _, c := range n.PodCIDRs {
			if c.Contains(a) {
				f.Node, f.pod = n.Name, true
			}
		}
	}
	return f
}
