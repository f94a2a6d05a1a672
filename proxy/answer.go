package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/packet"
)

// Answer says what must happen to the first packet of a flow on this node. It is the
// oracle for every backend: their Trace must give an equal Verdict.
func (p *Plan) Answer(pkt packet.Packet) packet.Verdict {
	if pkt.Proto == packet.SCTP && p.Config.Mode.Traits().NoSCTP {
		return packet.Verdict{Action: packet.Pass, Steps: []packet.Step{step("services", "this mode serves no SCTP")}}
	}
	if sp := p.at(frontKey{pkt.Dst.Addr(), pkt.Dst.Port(), pkt.Proto}); sp != nil {
		return p.answerVIP(sp, pkt).Sorted()
	}
	if p.NodePortOn(pkt.Dst.Addr()) && p.localhostAllowed(pkt) {
		if sp := p.at(frontKey{anyAddr(pkt.Dst.Addr().Is6()), pkt.Dst.Port(), pkt.Proto}); sp != nil {
			v := p.answerExternal(sp, pkt)
			v.Steps = slices.Insert(v.Steps, 0, step("nodePort", "%d/%s is Service %s", sp.NodePort, sp.Proto, sp.Key))
			return v.Sorted()
		}
	}
	return p.answerUnknown(pkt)
}

func step(where, format string, args ...any) packet.Step {
	return packet.Step{Where: where, What: fmt.Sprintf(format, args...)}
}

func (p *Plan) answerVIP(sp *ServicePort, pkt packet.Packet) packet.Verdict {
	dst := pkt.Dst.Addr()
	var v packet.Verdict
	switch {
	case dst == sp.ClusterIP:
		v = p.answerInternal(sp, pkt)
		v.Steps = slices.Insert(v.Steps, 0, step("clusterIP", "%s/%s is Service %s", pkt.Dst, sp.Proto, sp.Key))
	case slices.Contains(sp.LoadBalancerIPs, dst):
		if sp.HasEndpoints && sp.Restricted && !p.admitted(sp, pkt) {
			return packet.Verdict{Action: packet.Drop, Steps: []packet.Step{
				step("loadBalancerSourceRanges", "%s is in none of %v", pkt.Src, sp.SourceRanges)}}
		}
		v = p.answerExternal(sp, pkt)
		v.Steps = slices.Insert(v.Steps, 0, step("loadBalancer", "%s/%s is Service %s", pkt.Dst, sp.Proto, sp.Key))
	default:
		v = p.answerExternal(sp, pkt)
		v.Steps = slices.Insert(v.Steps, 0, step("externalIP", "%s/%s is Service %s", pkt.Dst, sp.Proto, sp.Key))
	}
	return v
}

// admitted applies source ranges. A balancer that sends from its own address is
// admitted where the node itself is (the node's packets to its own VIP look so).
func (p *Plan) admitted(sp *ServicePort, pkt packet.Packet) bool {
	for _, r := range sp.SourceRanges {
		if r.Contains(pkt.Src) {
			return true
		}
	}
	return pkt.Src == pkt.Dst.Addr() && sp.AdmitsNode(p.Config.NodeIPs)
}

// AdmitsNode tells whether a node address lies in the source ranges.
func (p *ServicePort) AdmitsNode(nodeIPs []netip.Addr) bool {
	return slices.ContainsFunc(nodeIPs, func(a netip.Addr) bool {
		return slices.ContainsFunc(p.SourceRanges, func(r netip.Prefix) bool { return r.Contains(a) })
	})
}

func (p *Plan) answerInternal(sp *ServicePort, pkt packet.Packet) packet.Verdict {
	if !sp.HasEndpoints {
		return reject(sp)
	}
	if sp.InternalLocal && len(sp.Local) == 0 {
		return drop("internalTrafficPolicy", "Local, and no endpoint on this node")
	}
	masq, why := false, "source is kept"
	switch {
	case p.Config.MasqueradeAll:
		masq, why = true, "masquerade: --masquerade-all"
	case p.Config.Detector.Implemented(sp.IPv6) && !p.Config.Detector.Local(pkt):
		masq, why = true, "masquerade: the source is no pod of this node"
	case p.Config.Mode.Traits().BindsVIPs && p.vips[pkt.Src]:
		masq, why = true, "masquerade: the source is a VIP, where no endpoint could answer"
	}
	return p.forward(sp, sp.Internal(), pkt, masq, why)
}

func (p *Plan) answerExternal(sp *ServicePort, pkt packet.Packet) packet.Verdict {
	if !sp.HasEndpoints {
		return reject(sp)
	}
	if !sp.ExternalLocal {
		return p.forward(sp, sp.Cluster, pkt, true, "masquerade: externalTrafficPolicy Cluster")
	}
	switch {
	case p.Config.Detector.Local(pkt) || p.atSocket(sp, pkt):
		return p.forward(sp, sp.Cluster, pkt, false, "a pod of this node takes any endpoint, source kept")
	case pkt.Local || p.isLocal(pkt.Src):
		return p.forward(sp, sp.Cluster, pkt, true, "masquerade: the node itself takes any endpoint")
	case len(sp.Local) == 0:
		return drop("externalTrafficPolicy", "Local, and no endpoint on this node")
	}
	return p.forward(sp, sp.Local, pkt, false, "externalTrafficPolicy Local keeps the source")
}

// atSocket tells whether the socket is led to its endpoint when it connects. Two kinds of
// a pod's packets are translated on the way even in a mode that does: datagrams, whose
// connected socket could never be led elsewhere once its endpoint is gone, and what goes
// to an address with source ranges, for a socket does not know its source yet.
func (p *Plan) atSocket(sp *ServicePort, pkt packet.Packet) bool {
	switch {
	case !p.Config.Mode.Traits().SocketLevel:
		return false
	case pkt.Local:
		return true
	}
	dst := pkt.Dst.Addr()
	ranges := sp.Restricted && dst != sp.ClusterIP && slices.Contains(sp.LoadBalancerIPs, dst)
	return pkt.OnNode && pkt.Proto == packet.TCP && !ranges
}

// guardsLoopback tells whether rules drop what others send to loopback: in iptables mode
// they do where NodePorts answer there, for which the kernel has to route it
// (CVE-2020-8558).
func (p *Plan) guardsLoopback(pkt packet.Packet) bool {
	return p.Config.Mode == IPTables && p.Config.LocalhostNodePorts && p.NodePortOn(netip.AddrFrom4([4]byte{127, 0, 0, 1})) &&
		pkt.Dst.Addr().IsLoopback() && pkt.Dst.Addr().Is4() && !pkt.Local && !pkt.Src.IsLoopback()
}

func (p *Plan) answerUnknown(pkt packet.Packet) packet.Verdict {
	dst := pkt.Dst.Addr()
	if p.guardsLoopback(pkt) {
		return drop("loopback", "only the node itself may send to "+dst.String())
	}
	if p.Config.RejectUnknownPorts {
		if p.vips[dst] {
			return packet.Verdict{Action: packet.Reject, Steps: []packet.Step{step("services", "no Service has %s/%s; the address is a Service's", pkt.Dst, pkt.Proto)}}
		}
		for _, c := range p.Config.ServiceCIDRs {
			if c.Contains(dst) {
				return drop("serviceCIDR", "no Service has the address "+dst.String())
			}
		}
	}
	return packet.Verdict{Action: packet.Pass, Steps: []packet.Step{step("services", "no Service claims %s/%s", pkt.Dst, pkt.Proto)}}
}

func reject(sp *ServicePort) packet.Verdict {
	return packet.Verdict{Action: packet.Reject, Steps: []packet.Step{step("endpoints", "Service %s has no usable endpoint", sp.Key)}}
}

func drop(where, what string) packet.Verdict {
	return packet.Verdict{Action: packet.Drop, Steps: []packet.Step{{Where: where, What: what}}}
}

func (p *Plan) forward(sp *ServicePort, to []Endpoint, pkt packet.Packet, masq bool, why string) packet.Verdict {
	socket := p.atSocket(sp, pkt)
	switch {
	case p.hidesSource(pkt):
		masq, why = true, "the connection to the endpoint is the proxy's own"
	case socket:
		masq, why = false, "a socket of this node connects to the endpoint itself"
	}
	v := packet.Verdict{Action: packet.Forward, Affinity: sp.Affinity > 0 || sp.Scheduler.ByClient(), Steps: []packet.Step{{Where: "source", What: why}}}
	for _, e := range to {
		hairpin := e.Addr.Addr() == pkt.Src && !socket
		if hairpin && !masq {
			v.Steps = append(v.Steps, step("hairpin", "%s may reach itself: masquerade then", e.Addr))
		}
		v.Choices = append(v.Choices, packet.Choice{Endpoint: e.Addr, Masquerade: masq || hairpin})
	}
	v.Steps = append(v.Steps, step("endpoints", "%d to choose from", len(to)))
	return v
}

func (p *Plan) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(p.Config.LocalAddrs, a) || slices.Contains(p.Config.NodeIPs, a)
}

// NodePortOn tells whether NodePorts answer at a, by nodePortAddresses alone.
func (p *Plan) NodePortOn(a netip.Addr) bool {
	if !p.isLocal(a) {
		return false
	}
	if p.Config.NodePortAddresses.Primary {
		return a == p.PrimaryIP(a.Is6())
	}
	family := false
	for _, c := range p.Config.NodePortAddresses.CIDRs {
		if c.Addr().Is6() != a.Is6() {
			continue
		}
		if family = true; c.Contains(a) {
			return true
		}
	}
	return !family
}

// PrimaryIP is the node's first address of a family, invalid when it has none.
func (p *Plan) PrimaryIP(v6 bool) netip.Addr {
	for _, a := range p.Config.NodeIPs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// localhostAllowed keeps NodePorts off loopback but for the node itself where it is asked
// for (CVE-2020-8558): IPv4 in iptables mode, else what listeners of this process serve.
func (p *Plan) localhostAllowed(pkt packet.Packet) bool {
	dst := pkt.Dst.Addr()
	switch {
	case !dst.IsLoopback():
		return true
	case !pkt.Local:
		return false
	case p.Config.Mode.Traits().HidesSource && p.Config.LocalhostNodePorts:
		return listening(dst) && pkt.Proto != packet.SCTP
	case p.Config.LocalhostRelay:
		return listening(dst) && pkt.Proto == packet.TCP
	}
	return p.Config.LocalhostNodePorts && dst.Is4()
}

// listening tells which loopback addresses listeners for NodePorts are on.
func listening(a netip.Addr) bool {
	return a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
}

// hidesSource tells whether the endpoint meets a connection of this process.
func (p *Plan) hidesSource(pkt packet.Packet) bool {
	if p.Config.Mode.Traits().HidesSource {
		return pkt.Proto != packet.SCTP // rules forward it there
	}
	return p.Config.LocalhostRelay && pkt.Dst.Addr().IsLoopback()
}

// Lookup finds the ServicePort that claims a destination, nil when none does.
func (p *Plan) Lookup(dst netip.AddrPort, proto packet.Protocol) *ServicePort {
	if sp := p.at(frontKey{dst.Addr(), dst.Port(), proto}); sp != nil {
		return sp
	}
	if p.NodePortOn(dst.Addr()) {
		return p.at(frontKey{anyAddr(dst.Addr().Is6()), dst.Port(), proto})
	}
	return nil
}
