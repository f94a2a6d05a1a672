package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/model"
)

// spare leaves out of the cluster's ranges those that machines or Pods have addresses in:
// to drop what nobody has a Service at would cut this node off from them, and from the
// API server for good.
func (c Config) spare(snap *model.Snapshot) ([]netip.Prefix, []model.Problem) {
	var out []netip.Prefix
	var problems []model.Problem
	for _, r := range c.ServiceCIDRs {
		who := ""
		if c.RejectUnknownPorts {
			who = c.inRange(r, snap)
		}
		if who == "" {
			out = append(out, r)
			continue
		}
		problems = append(problems, model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: c.Node}}, Reason: "ServiceCIDRInUse",
			Message: fmt.Sprintf("the ServiceCIDR %s contains %s; to drop packets to addresses of it that no Service has would cut the node off, so none are dropped in this range: choose another", r, who)})
	}
	return out, problems
}

// inRange names whom a range of Services must not contain and does, else "".
func (c Config) inRange(r netip.Prefix, snap *model.Snapshot) string {
	first := netip.AddrPort{} // of several the first, to say the same every time
	for s := range apiServers(snap, c) {
		if r.Contains(s.Addr()) && (!first.IsValid() || s.Compare(first) < 0) && !clusterAddrs(snap)[s.Addr()] {
			first = s
		}
	}
	if first.IsValid() {
		return fmt.Sprintf("%s, the API server's address", first)
	}
	own := slices.DeleteFunc(slices.Concat(c.NodeIPs, c.LocalAddrs), func(a netip.Addr) bool { return a.IsLoopback() || !r.Contains(a) })
	if len(own) > 0 { // a cache of names may have taken the DNS Service's
		vips := clusterAddrs(snap)
		if i := slices.IndexFunc(own, func(a netip.Addr) bool { return !vips[a] }); i >= 0 {
			return fmt.Sprintf("%s, an address of this node", own[i])
		}
	}
	for _, n := range snap.Nodes {
		for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
			if r.Contains(a) {
				return fmt.Sprintf("%s, an address of node %s", a, n.Name)
			}
		}
		for _, pods := range n.PodCIDRs {
			if r.Overlaps(pods) {
				return fmt.Sprintf("addresses of %s, which Pods of node %s have", pods, n.Name)
			}
		}
	}
	return ""
}

// clusterAddrs are addresses that lie in the ranges rightly: the API server may be reached
// by its Service, as from within a Pod, and the node may have bound one.
func clusterAddrs(snap *model.Snapshot) map[netip.Addr]bool {
	out := make(map[netip.Addr]bool, len(snap.Services))
	for _, s := range snap.Services {
		for _, a := range s.ClusterIPs {
			out[a] = true
		}
	}
	return out
}
