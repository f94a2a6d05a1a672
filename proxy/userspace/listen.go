package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
)

// listNames are the two lists of a ServicePort, in the order of part.ports.
func listNames() [2]string { return [2]string{"cluster", "local"} }

// idOf names a ServicePort among all of both families.
func idOf(sp *proxy.ServicePort) string {
	id := fmt.Sprintf("%s/%s", sp.Key, sp.Proto)
	if sp.IPv6 {
		id += "/ipv6"
	}
	return id
}

func innerName(sp *proxy.ServicePort, which string) string { return idOf(sp) + " " + which }

// listsOf makes the Cluster and the Local list without the endpoints in without.
func listsOf(sp *proxy.ServicePort, without []netip.AddrPort) [2]*List {
	var out [2]*List
	names := listNames()
	for i, from := range [][]proxy.Endpoint{sp.Cluster, sp.Local} {
		out[i] = &List{Name: innerName(sp, names[i]), Group: idOf(sp), Scheduler: sp.Scheduler, Affinity: sp.Affinity}
		for _, e := range from {
			if !slices.Contains(without, e.Addr) {
				out[i].Targets = append(out[i].Targets, e.Addr)
			}
		}
	}
	return out
}

// inners are the listeners the rules lead to, one per list that has endpoints.
func (c *compiler) inners(sp *proxy.ServicePort, made *part, lists [2]*List) []*Listener {
	var out []*Listener
	for i, list := range lists {
		if made.ports[i] == 0 {
			continue
		}
		out = append(out, &Listener{
			Name: list.Name, Owner: sp.Ref(), Key: sp.Key, Inner: true, Lists: []*List{list},
			Addr: netip.AddrPortFrom(c.innerOf(sp.IPv6), made.ports[i]),
		})
	}
	return out
}

func outer(sp *proxy.ServicePort, at netip.AddrPort, lists []*List) *Listener {
	return &Listener{Name: fmt.Sprintf("%s @%s", idOf(sp), at), Owner: sp.Ref(), Key: sp.Key, Addr: at, Lists: lists}
}

// ownAddresses are the listeners of a process without rules: on every address of the
// Service that is the machine's own, and on the NodePort.
func (c *compiler) ownAddresses(sp *proxy.ServicePort, lists [2]*List) []*Listener {
	var out []*Listener
	if own := c.owns(sp.ClusterIP); own && len(sp.Internal()) > 0 {
		internal := lists[:1]
		if sp.InternalLocal {
			internal = lists[1:]
		}
		out = append(out, outer(sp, netip.AddrPortFrom(sp.ClusterIP, sp.Port), internal))
	}
	for _, a := range sp.LoadBalancerIPs {
		if c.owns(a) {
			l := c.outside(sp, netip.AddrPortFrom(a, sp.Port), lists)
			l.restricted, l.sourceRanges = sp.Restricted, sp.SourceRanges
			if sp.Restricted && sp.AdmitsNode(c.plan.Config.NodeIPs) {
				l.sourceRanges = append(slices.Clone(sp.SourceRanges), netip.PrefixFrom(a, a.BitLen()))
			}
			out = append(out, l)
		}
	}
	for _, a := range sp.ExternalIPs {
		if c.owns(a) && !slices.Contains(sp.LoadBalancerIPs, a) {
			out = append(out, c.outside(sp, netip.AddrPortFrom(a, sp.Port), lists))
		}
	}
	if sp.NodePort != 0 {
		for _, a := range c.nodePortAddrs(sp.IPv6) {
			out = append(out, c.outside(sp, netip.AddrPortFrom(a, sp.NodePort), lists))
		}
	}
	return slices.DeleteFunc(out, func(l *Listener) bool {
		return !slices.ContainsFunc(l.Lists, func(list *List) bool { return len(list.Targets) > 0 })
	})
}

func (c *compiler) outside(sp *proxy.ServicePort, at netip.AddrPort, lists [2]*List) *Listener {
	l := outer(sp, at, lists[:1])
	if sp.ExternalLocal {
		cfg := c.plan.Config
		l.Lists, l.split = lists[:], &split{detector: cfg.Detector, own: slices.Concat(cfg.NodeIPs, cfg.LocalAddrs)}
	}
	return l
}

func (c *compiler) owns(a netip.Addr) bool {
	return a.IsValid() && slices.Contains(c.plan.Config.LocalAddrs, a)
}

// nodePortAddrs are the machine's addresses NodePorts answer on. Of loopback it is the
// first of each family; link-local addresses mean nothing without their interface.
func (c *compiler) nodePortAddrs(v6 bool) []netip.Addr {
	var out []netip.Addr
	add := func(a netip.Addr) {
		if a.Is6() == v6 && c.plan.NodePortOn(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range slices.Concat(c.plan.Config.NodeIPs, c.plan.Config.LocalAddrs) {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() && c.owns(a) {
			add(a)
		}
	}
	if c.plan.Config.LocalhostNodePorts {
		add(loopback(v6))
	}
	return out
}

// notCaptured tells what a process without rules leaves out: once for all cluster
// addresses, and for each Service port that it serves nothing of.
func (c *compiler) notCaptured() []model.Problem {
	var vips []string
	nothing := 0
	var sctp []model.Problem
	for _, sp := range c.plan.Ports {
		if sp.Proto == packet.SCTP {
			sctp = append(sctp, model.Problem{Object: sp.Ref(), Field: "spec.ports", Reason: "ProtocolNotServed",
				Message: fmt.Sprintf("port %d: SCTP needs rules in the kernel, which this process may not write", sp.Port)})
			continue
		}
		served := sp.NodePort != 0
		for _, a := range slices.Concat([]netip.Addr{sp.ClusterIP}, sp.ExternalIPs, sp.LoadBalancerIPs) {
			if a.IsValid() && !c.owns(a) {
				vips = append(vips, fmt.Sprintf("%s of %s", a, sp.Ref().Name))
			} else if a.IsValid() {
				served = true
			}
		}
		if !served {
			nothing++
		}
	}
	if len(vips) == 0 {
		return sctp
	}
	vips = slices.Compact(slices.Sorted(slices.Values(vips)))
	return append(sctp, model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: c.plan.Config.Node}}, Reason: "NotCaptured",
		Message: fmt.Sprintf("without CAP_NET_ADMIN no rules lead to this proxy: %d addresses of Services that this machine does not have are not reachable by it (%s), and %d Service ports not at all; it listens on node ports and on what addresses the machine has",
			len(vips), listed(vips), nothing)})
}

// notReached tells of endpoints that are left out, and whose addresses they are.
func (c *compiler) notReached(sp *proxy.ServicePort, ends []netip.AddrPort) model.Problem {
	whose := make([]string, len(ends))
	for i, e := range ends {
		whose[i] = e.String()
		if other := c.plan.Lookup(e, sp.Proto); other != nil {
			whose[i] += " of Service " + other.Service.String()
		}
	}
	return model.Problem{Object: sp.Ref(), Field: "endpoints", Reason: "EndpointIsService",
		Message: fmt.Sprintf("%s: addresses of Services themselves, left out: a proxy process that connects to one would serve itself; list the Pods' addresses", listed(whose))}
}

// listed are the first three of a list and how many more there are.
func listed(list []string) string {
	if n := len(list); n > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:3], ", "), n-3)
	}
	return strings.Join(list, ", ")
}
