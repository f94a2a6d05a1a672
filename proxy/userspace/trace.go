package userspace

import (
	"fmt"
	"net/netip"

	"fairway/packet"
	"fairway/proxy"
)

// Trace walks the Program with the first packet of a flow: the rules as the kernel would,
// then the listener they lead to. local tells which addresses are this node's.
func (p *Program) Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict {
	if v, ok := p.outer(pkt); ok {
		return v
	}
	if p.Rules == nil {
		return packet.Verdict{Action: packet.Pass, Steps: []packet.Step{{Where: "listeners", What: "none is at " + pkt.Dst.String()}}}
	}
	v := p.Capture().Trace(pkt, local)
	for i := range v.Steps {
		v.Steps[i].Where = ownTable(v.Steps[i].Where)
	}
	if v.Action != packet.Forward || len(v.Choices) != 1 {
		return v
	}
	if l := p.byAddr[front{v.Choices[0].Endpoint, pkt.Proto}]; l != nil {
		return l.trace(pkt, v)
	}
	return v // the kernel forwards it
}

// outer is what a listener at a Service's own address does with the packet; false when
// there is none. Rules do not lead away from one: only loopback's are beside rules.
func (p *Program) outer(pkt packet.Packet) (packet.Verdict, bool) {
	p.once.Do(p.index)
	at := front{pkt.Dst, pkt.Proto}
	if p.refused[at] {
		return packet.Verdict{Action: packet.Reject, Steps: []packet.Step{{Where: "listeners", What: "no endpoint, so none is at " + pkt.Dst.String()}}}, true
	}
	if l := p.byAddr[at]; l != nil && !l.Inner {
		return l.trace(pkt, packet.Verdict{}), true
	}
	return packet.Verdict{}, false
}

// trace is what the listener does with a client, after the steps so far.
func (l *Listener) trace(pkt packet.Packet, so packet.Verdict) packet.Verdict {
	where := fmt.Sprintf("listener %s %s", l.Key.Proto, l.Addr)
	v := packet.Verdict{Action: packet.Drop, Steps: so.Steps}
	at := l.Choose(pkt.Src)
	if at == Refused {
		v.Steps = append(v.Steps, packet.Step{Where: where, What: l.Name + ": the client is not served"})
		return v
	}
	list := l.Lists[at]
	v.Action, v.Affinity = packet.Forward, list.Affinity > 0 || list.Scheduler.ByClient()
	for _, t := range list.Targets {
		v.Choices = append(v.Choices, packet.Choice{Endpoint: t, Masquerade: true})
	}
	v.Steps = append(v.Steps, packet.Step{Where: where, What: fmt.Sprintf("%s: a connection of the process, scheduler %s, %s", l.Name, list.Scheduler, list.odds())})
	return v.Sorted()
}

// odds is how likely a new client meets each endpoint.
func (l *List) odds() string {
	n := len(l.Targets)
	switch {
	case l.Scheduler == proxy.LeastConn:
		return fmt.Sprintf("the one of %d with the fewest connections", n)
	case l.Scheduler.ByClient():
		return fmt.Sprintf("the one of %d that the client's address says", n)
	}
	return fmt.Sprintf("each of %d with probability %.4f", n, 1/float64(n))
}
