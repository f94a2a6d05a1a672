package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
)

// why says in words what stops a packet, in every mode alike: from the Plan, which all
// follow, and from what the Snapshot knows of the address. Empty is nothing known.
func (w *World) why(pkt packet.Packet) string {
	if sp := w.Plan.Lookup(pkt.Dst, pkt.Proto); sp != nil {
		return w.whyNot(sp, pkt)
	}
	a := pkt.Dst.Addr()
	if reason := w.whyNotServed(pkt); reason != "" {
		return reason
	}
	for _, c := range w.Plan.Config.ServiceCIDRs {
		if c.Contains(a) {
			return "no Service has the cluster address " + a.String()
		}
	}
	if w.local(a) || w.nodeAt(a) != "" {
		return w.whyNoNodePort(pkt)
	}
	return ""
}

// whyNot is about a packet that a ServicePort has the address of.
func (w *World) whyNot(sp *proxy.ServicePort, pkt packet.Packet) string {
	cfg := w.Plan.Config
	v := w.Plan.Answer(pkt)
	last := packet.Step{}
	if len(v.Steps) > 0 {
		last = v.Steps[len(v.Steps)-1]
	}
	switch {
	case cfg.Mode.Traits().NoSCTP && pkt.Proto == packet.SCTP:
		return fmt.Sprintf("it is for Service %s, but mode %s serves no SCTP", sp.Service, cfg.Mode)
	case v.Action == packet.Forward && cfg.Mode == proxy.Userspace && !w.Plan.PrimaryIP(pkt.Dst.Addr().Is6()).IsValid():
		return fmt.Sprintf("the listeners of mode %s need an address of the node, and none is known", cfg.Mode)
	case v.Action == packet.Pass && pkt.Dst.Addr().IsLoopback():
		return fmt.Sprintf("nodePort %d is Service %s's, but does not answer on loopback here (proxy.localhostNodePorts)", sp.NodePort, sp.Service)
	}
	switch last.Where {
	case "loadBalancerSourceRanges":
		return fmt.Sprintf("%s is in none of the loadBalancerSourceRanges of Service %s: %s", pkt.Src, sp.Service, list(sp.SourceRanges))
	case "internalTrafficPolicy", "externalTrafficPolicy":
		return fmt.Sprintf("%s of Service %s is Local, and none of its endpoints is on node %s%s", last.Where, sp.Service, nodeName(cfg.Node), w.endpointNodes(sp))
	case "endpoints":
		return w.noEndpoints(sp)
	}
	return ""
}

// endpointNodes says where the endpoints are that this node may not use.
func (w *World) endpointNodes(sp *proxy.ServicePort) string {
	svc := w.Snap.Service(sp.Service)
	if svc == nil {
		return ""
	}
	var nodes []string
	for _, e := range svc.Endpoints {
		if e.Ready && e.Addr.Is6() == sp.IPv6 && e.PortFor(sp.PortName, sp.Proto) != 0 {
			name := e.Node
			if name == "" {
				name = "a node that is not named"
			}
			if !slices.Contains(nodes, name) {
				nodes = append(nodes, name)
			}
		}
	}
	slices.Sort(nodes)
	if len(nodes) > 5 {
		nodes = append(nodes[:5], "…")
	}
	if len(nodes) == 0 {
		return ""
	}
	return " (they are on " + strings.Join(nodes, ", ") + ")"
}

// whyNotServed is about an address that some Service has, which nothing here serves on
// the port.
func (w *World) whyNotServed(pkt packet.Packet) string {
	var reasons []string
	for _, svc := range w.Snap.Services {
		if hasAddr(svc, pkt.Dst.Addr()) {
			reasons = append(reasons, w.notServed(svc, pkt))
		}
	}
	if len(reasons) > 3 {
		reasons = append(reasons[:3], "…")
	}
	return strings.Join(reasons, "; ")
}

// hasAddr tells whether an address is the Service's, by whatever field.
func hasAddr(svc *model.Service, a netip.Addr) bool {
	return svc.HasVIP() && (slices.Contains(svc.ClusterIPs, a) || slices.Contains(svc.ExternalIPs, a) ||
		slices.ContainsFunc(svc.Ingress, func(i model.LBIngress) bool { return i.IP == a }))
}

func (w *World) notServed(svc *model.Service, pkt packet.Packet) string {
	a := pkt.Dst.Addr()
	whose := fmt.Sprintf("%s is an address of Service %s, which", a, svc.Name)
	if label := w.leftAlone(svc); label != "" {
		return whose + " " + label
	}
	other := packet.Protocol("")
	for _, p := range svc.Ports {
		switch {
		case p.Port == pkt.Dst.Port() && p.Protocol == pkt.Proto:
			return whose + " has the port, but it is left out here: " + w.leftOut(svc, a)
		case p.Port == pkt.Dst.Port():
			other = p.Protocol
		}
	}
	if other != "" {
		return fmt.Sprintf("%s has port %d for %s, not for %s", whose, pkt.Dst.Port(), other, pkt.Proto)
	}
	return fmt.Sprintf("%s has no port %d/%s: it has %s", whose, pkt.Dst.Port(), pkt.Proto, ports(svc))
}

// leftAlone says why this proxy serves none of a Service's addresses, empty when it does.
func (w *World) leftAlone(svc *model.Service) string {
	const label = "service.kubernetes.io/service-proxy-name"
	name, labelled := svc.Labels[label]
	switch {
	case !svc.ServedBy(w.Plan.Config.ProxyName) && labelled:
		return fmt.Sprintf("carries the label %s=%s: this proxy leaves it alone, another is to serve it", label, name)
	case !svc.ServedBy(w.Plan.Config.ProxyName):
		return fmt.Sprintf("does not carry the label %s=%s: this proxy leaves it alone", label, w.Plan.Config.ProxyName)
	case svc.HeadlessLabel:
		return "carries the label service.kubernetes.io/headless: no proxy serves it"
	}
	return ""
}

// leftOut says why one address of a Service that is served is not.
func (w *World) leftOut(svc *model.Service, a netip.Addr) string {
	for _, i := range svc.Ingress {
		if i.IP == a && i.Proxy {
			return "its ipMode is Proxy, so packets go to the load balancer itself"
		}
	}
	if w.Plan.Config.NoExternalIPs && slices.Contains(svc.ExternalIPs, a) {
		return "externalIPs are not served (proxy.externalIPs)"
	}
	return "another Service has it, or the node lives by it; the problem told for the Service says which"
}

// whyNoNodePort is about a node's own address, on a port nothing serves there.
func (w *World) whyNoNodePort(pkt packet.Packet) string {
	port := pkt.Dst.Port()
	other := ""
	for _, svc := range w.Snap.Services {
		for _, p := range svc.Ports {
			switch {
			case p.NodePort != port || port == 0:
			case w.leftAlone(svc) != "":
				return fmt.Sprintf("nodePort %d is of Service %s, which %s", port, svc.Name, w.leftAlone(svc))
			case p.Protocol != pkt.Proto:
				other = fmt.Sprintf("nodePort %d of Service %s is for %s, not for %s", port, svc.Name, p.Protocol, pkt.Proto)
			case w.local(pkt.Dst.Addr()) && !w.Plan.NodePortOn(pkt.Dst.Addr()):
				return fmt.Sprintf("nodePort %d is of Service %s, but nodePorts do not answer on %s here%s", port, svc.Name, pkt.Dst.Addr(), w.nodePortAddrs(pkt.Dst.Addr().Is6()))
			}
		}
	}
	if other != "" {
		return other
	}
	return fmt.Sprintf("no Service has the nodePort %d/%s", port, pkt.Proto)
}

// nodePortAddrs says where NodePorts do answer.
func (w *World) nodePortAddrs(v6 bool) string {
	n := w.Plan.Config.NodePortAddresses
	if n.Primary {
		if a := w.Plan.PrimaryIP(v6); a.IsValid() {
			return fmt.Sprintf(", but on the node's primary address %s alone (proxy.nodePortAddresses)", a)
		}
		return ": no primary address of the node is known"
	}
	return ", only in " + list(n.CIDRs) + " (proxy.nodePortAddresses)"
}

// ports names a Service's ports: NAME:PORT/PROTOCOL.
func ports(svc *model.Service) string {
	var out []string
	for _, p := range svc.Ports {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol), ":"))
	}
	return strings.Join(out, ", ")
}

func list(prefixes []netip.Prefix) string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}
