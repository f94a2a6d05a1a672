package userspace

import (
	"net/netip"

	"fairway/packet"
	"fairway/proxy"
)

// Localhost makes listeners on 127.0.0.1 and [::1] for the TCP NodePorts of a Plan, for
// modes whose rules do not reach loopback (KEP-6032). What it made of the same
// *proxy.ServicePort in prev (nil at first) is taken over.
func Localhost(prev *Program, plan *proxy.Plan) *Program {
	c := &compiler{plan: plan}
	p := &Program{settings: c.settings(), plan: plan}
	if prev == nil || prev.settings != p.settings {
		prev = &Program{}
	}
	kept := prev.keeper(len(plan.Ports))
	for i, sp := range plan.Ports {
		if !plan.Config.LocalhostRelay || sp.Proto != packet.TCP {
			continue
		}
		made := kept(i, sp)
		if made == nil {
			made = &part{from: sp, captured: sp}
			made.listeners, made.refused = c.localhost(sp, listsOf(sp, nil))
		}
		p.add(made)
	}
	return p
}

// localhost is the listener on the loopback address for the NodePort, to which no rule
// could lead. Only the node itself can ask it, so it has the Cluster list. Refused is
// where it would be had it an endpoint.
func (c *compiler) localhost(sp *proxy.ServicePort, lists [2]*List) (_ []*Listener, refused front) {
	lo := loopback(sp.IPv6)
	if sp.NodePort == 0 || !c.plan.NodePortOn(lo) {
		return nil, front{}
	}
	at := netip.AddrPortFrom(lo, sp.NodePort)
	if len(lists[0].Targets) == 0 {
		return nil, front{at, sp.Proto}
	}
	return []*Listener{outer(sp, at, lists[:1])}, front{}
}

func loopback(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// rules is what a mode traces.
type rules interface {
	Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict
}

// Relayed is the rules of a mode with the listeners of Localhost beside them.
type Relayed struct {
	Rules     rules
	Listeners *Program
}

// Trace asks the listeners for what goes to loopback, and the rules for the rest.
func (r Relayed) Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict {
	if pkt.Dst.Addr().IsLoopback() {
		if v, ok := r.Listeners.outer(pkt); ok {
			return v
		}
	}
	return r.Rules.Trace(pkt, local)
}
