package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/packet"
)

// Trace walks the first packet of a flow through the rules. local tells whether an
// address is the node's own, as the kernel would (addrtype). A random choice takes
// every branch, so the Verdict lists all endpoints the flow may reach.
func (p *Program) Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict {
	w := &walk{pkt: pkt, local: local, chains: map[string]map[string][]Rule{}}
	for _, t := range p.family(pkt.Dst.Addr().Is6()).tables() {
		w.chains[t.Name] = make(map[string][]Rule, len(t.Chains))
		for _, c := range t.Chains {
			w.chains[t.Name][c.Name] = c.Rules
		}
	}
	first := "PREROUTING"
	if pkt.Local {
		first = "OUTPUT"
	}
	w.run(Nat, first, state{dst: pkt.Dst, part: 1})
	if len(w.ends) == 0 {
		return w.filter(state{dst: pkt.Dst})
	}
	return w.verdict()
}

// state is what rules may change on a packet's way, or ask about it.
type state struct {
	dst  netip.AddrPort
	mark uint32
	nat  bool
	part float64 // the share of all flows like this one that come here
}

// walk is one packet on its way; ends collects the DNATs it may come to.
type walk struct {
	pkt    packet.Packet
	local  func(netip.Addr) bool
	chains map[string]map[string][]Rule
	ends   []state
	sticky bool
	steps  []packet.Step
	depth  int
	taken  int
}

// fate is how a chain was left.
type fate uint8

const (
	through fate = iota // at its end, or by RETURN
	ended               // by a verdict that ends the table
	dropped
	rejected
	masqueraded
)

// run walks a chain. A rule that matches some packets only (statistic) is walked both
// ways; one that needs an earlier flow (recent) is not taken, but noted.
func (w *walk) run(table, chain string, s state) (state, fate) {
	// The kernel refuses loops, but a listing in a file may hold anything.
	const deepest, longest = 16, 1 << 16
	w.depth++
	defer func() { w.depth-- }()
	for _, r := range w.chains[table][chain] {
		if w.depth > deepest || w.taken > longest {
			break
		}
		if !w.matches(r, s) {
			continue
		}
		w.taken++
		if r.Recent.Seconds != 0 {
			w.sticky = true
			continue
		}
		w.steps = append(w.steps, packet.Step{Where: table + " " + chain, What: r.Text()})
		branch := s
		some := max(r.OneIn, r.Every)
		if some != 0 {
			branch.part = s.part / float64(some)
			s.part -= branch.part
		}
		next, f := w.take(table, r.Target, branch)
		switch {
		case some != 0:
			continue // the other packets go on
		case r.Target.Verb == Return:
			return next, through
		case f != through:
			return next, f
		}
		s = next
	}
	return s, through
}

func (w *walk) take(table string, t Target, s state) (state, fate) {
	switch t.Verb {
	case Jump:
		return w.run(table, t.Chain, s)
	case OrMark:
		s.mark |= t.Bits
	case XorMark:
		s.mark ^= t.Bits
	case DNAT:
		s.dst, s.nat = t.To, t.To != s.dst // a DNAT that changes nothing leaves no trace in conntrack
		w.ends = append(w.ends, s)
		return s, ended
	case Accept:
		return s, ended
	case Masquerade:
		return s, masqueraded
	case Drop:
		return s, dropped
	case Reject:
		return s, rejected
	}
	return s, through
}

func (w *walk) matches(r Rule, s state) bool {
	dst := s.dst.Addr()
	switch {
	case r.Raw != "",
		r.Proto != "" && r.Proto != w.pkt.Proto,
		r.DPort != 0 && r.DPort != s.dst.Port(),
		!r.Src.matches(w.pkt.Src), !r.Dst.matches(dst),
		r.SrcLocal && !w.pkt.Local && !w.local(w.pkt.Src),
		r.DstLocal && !w.local(dst),
		r.In.Name != "" && r.In.matches(w.pkt.In) == r.In.Not,
		r.Mark.Bits != 0 && (s.mark&r.Mark.Bits == r.Mark.Bits) == r.Mark.Not,
		r.SentHere && s.nat,
		r.State.Bits != 0 && (r.State.Bits&s.conntrack() != 0) == r.State.Not:
		return false
	}
	return true
}

// conntrack is the state of a flow's first packet.
func (s state) conntrack() StateBits {
	if s.nat {
		return New | DNATed
	}
	return New
}

func (n Net) matches(a netip.Addr) bool { return !n.IsValid() || n.Contains(a) != n.Not }

func (i Iface) matches(name string) bool {
	if p, ok := strings.CutSuffix(i.Name, "+"); ok {
		return strings.HasPrefix(name, p)
	}
	return i.Name == name
}

// filter walks the filter table the way the routing decision leads.
func (w *walk) filter(s state) packet.Verdict {
	out := packet.Verdict{Action: packet.Pass}
	here := w.local(s.dst.Addr())
	var hooks []string
	if w.pkt.Local {
		hooks = append(hooks, "OUTPUT")
	}
	switch {
	case here:
		hooks = append(hooks, "INPUT")
	case !w.pkt.Local:
		hooks = append(hooks, "FORWARD")
	}
	for _, hook := range hooks {
		switch _, f := w.run(Filter, hook, s); f {
		case dropped:
			out.Action = packet.Drop
		case rejected:
			out.Action = packet.Reject
		default:
			continue
		}
		break
	}
	out.Steps = w.steps
	return out
}

// verdict takes every destination found through filter and postrouting.
func (w *walk) verdict() packet.Verdict {
	ends, steps := w.ends, w.steps
	v := packet.Verdict{Action: packet.Forward, Affinity: w.sticky}
	worst := packet.Pass
	for _, e := range ends {
		w.steps = nil
		if f := w.filter(e); f.Action != packet.Pass {
			worst = f.Action
			steps = append(steps, f.Steps...)
			continue
		}
		w.steps = nil
		_, f := w.run(Nat, "POSTROUTING", e)
		c := packet.Choice{Endpoint: e.dst, Masquerade: f == masqueraded}
		steps = append(steps, w.steps...)
		steps = append(steps, packet.Step{Where: "endpoint " + e.dst.String(),
			What: fmt.Sprintf("probability %.4f; %s", e.part, after(w.pkt, c))})
		v.Choices = append(v.Choices, c)
	}
	if len(v.Choices) == 0 {
		v = packet.Verdict{Action: worst}
	}
	v.Steps = slices.CompactFunc(steps, func(a, b packet.Step) bool { return a == b })
	return v.Sorted()
}

// after is the packet as it leaves.
func after(p packet.Packet, c packet.Choice) string {
	p.Dst = c.Endpoint
	if c.Masquerade {
		return fmt.Sprintf("leaves as %s (this node) > %s", p.Proto, p.Dst)
	}
	return "leaves as " + p.String()
}
