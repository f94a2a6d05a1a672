package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"fairway/kernel"
	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeFor chooses the node that a packet from outside the cluster meets first: the one
// that holds the address, else the one that announces it, else the first of several,
// which note says. The name is empty when there is no Node to choose.
func (cl *cluster) nodeFor(to string) (name, note string) {
	if len(cl.snap.Nodes) < 2 {
		return "", ""
	}
	if addr, ok := addressIn(to); ok {
		for _, n := range cl.snap.Nodes {
			if slices.Contains(n.InternalIPs, addr) || slices.Contains(n.ExternalIPs, addr) {
				return n.Name, ""
			}
		}
		list, _ := lb.Announce(cl.snap, cl.config.lb(), nil)
		for _, a := range list {
			if a.Addr == addr && a.Node != "" {
				return a.Node, ""
			}
		}
	}
	name = cl.snap.Nodes[0].Name
	return name, fmt.Sprintf("the rules are those of node %s, as if it came in there; --node chooses another", name)
}

// addressIn is the address of ADDR:PORT or of a URL that names one.
func addressIn(to string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(to); err == nil {
		return ap.Addr().Unmap(), true
	}
	u, err := url.Parse(to)
	if err != nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return a.Unmap(), err == nil
}

// meetHere has this machine, the node of a name, meet the packet, with the addresses run
// would take: a packet to an address that is neither its own nor a Service's is on its way.
func (cl *cluster) meetHere(name string) (note string, err error) {
	if cl.snap.Node(name) == nil {
		cl.objects.Nodes = nil
		cl.build(withOwnNode(cl.objects, name, kernel.DefaultAddrs()))
	}
	if err := cl.planFor(name); err != nil {
		return "", err
	}
	var own []string
	for _, a := range cl.plan.Config.NodeIPs {
		own = append(own, a.String())
	}
	if len(own) == 0 {
		return "no Node among the objects, and this machine has no address to take for the node's: node ports answer nowhere", nil
	}
	return fmt.Sprintf("no Node among the objects: the node's address is taken to be this machine's, %s; a Node object says another", strings.Join(own, " and ")), nil
}

// nodeNames is for people: which --node there is.
func nodeNames(snap *model.Snapshot) string {
	var names []string
	for _, n := range snap.Nodes {
		if len(names) == 5 {
			names = append(names, "…")
			break
		}
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// withOwnNode adds a Node for this machine where manifests have none: addresses are
// announced by Nodes, and node ports answer on a Node's addresses.
func withOwnNode(o model.Objects, name string, addrs []netip.Addr) model.Objects {
	if len(o.Nodes) > 0 || name == "" {
		return o
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	o.Nodes = []*corev1.Node{n}
	return o
}
