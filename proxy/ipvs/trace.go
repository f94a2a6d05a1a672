package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/packet"
)

// Trace walks the first packet of a flow the way through the kernel: rules, then the
// virtual service found by mark or address, then masquerade. local tells whether an
// address is the node's own without Device.
func (p *Program) Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict {
	v6 := pkt.Dst.Addr().Is6()
	f := p.family(v6)
	w := &walk{pkt: pkt, st: p.State(v6), chains: map[Place][]Rule{}}
	w.local = func(a netip.Addr) bool { return w.st.Addrs[a] || local(a) }
	for _, t := range f.set.tables() {
		for _, c := range t.Chains {
			w.chains[Place{t.Name, c.Name}] = c.Rules
		}
	}
	return w.verdict()
}

type walk struct {
	pkt    packet.Packet
	local  func(netip.Addr) bool
	st     *State
	chains map[Place][]Rule
	mark   uint32
	steps  []packet.Step
}

// fate is how a chain was left.
type fate uint8

const (
	through fate = iota // at its end, or by RETURN
	accepted
	dropped
	rejected
	masqueraded
)

func (w *walk) step(where, format string, args ...any) {
	w.steps = append(w.steps, packet.Step{Where: where, What: fmt.Sprintf(format, args...)})
}

func (w *walk) verdict() packet.Verdict {
	var v packet.Verdict
	at := func(table, hook string) bool {
		switch w.hook(table, hook) {
		case dropped:
			v.Action = packet.Drop
		case rejected:
			v.Action = packet.Reject
		default:
			return true
		}
		return false
	}
	dst := w.pkt.Dst.Addr()
	before, after := "PREROUTING", "INPUT"
	if w.pkt.Local {
		before, after = "OUTPUT", "OUTPUT"
	} else if !w.local(dst) {
		after = "FORWARD"
	}
	goOn := at(Mangle, before) && at(Nat, before)
	switch {
	case !goOn:
	case w.pkt.Local: // IPVS comes before filter OUTPUT, and takes what it knows
		if !w.balance(&v) && at(Filter, after) {
			v.Action = packet.Pass
		}
	case at(Mangle, after) && at(Filter, after):
		if after != "INPUT" || !w.balance(&v) {
			v.Action = packet.Pass
		}
	}
	v.Steps = w.steps
	return v.Sorted()
}

// hook walks our jumps of a built-in chain, in their order.
func (w *walk) hook(table, chain string) fate {
	var list []Rule
	for _, h := range hooks() {
		if h.table == table && h.chain == chain {
			list = append([]Rule{h.rule}, list...)
		}
	}
	return w.run(table, chain, list)
}

func (w *walk) run(table, chain string, rules []Rule) fate {
	for _, r := range rules {
		if !w.matches(r) {
			continue
		}
		if r.Target.Verb == MapMark && !w.in(Match{Set: r.Target.Set, By: "dst,dst"}) {
			continue
		}
		w.step(table+" "+chain, "%s", r.Text(w.st.V6))
		switch t := r.Target; t.Verb {
		case Jump:
			if f := w.run(table, t.Chain, w.chains[Place{table, t.Chain}]); f != through {
				return f
			}
		case Return:
			return through
		case Accept:
			return accepted
		case Drop:
			return dropped
		case Reject:
			return rejected
		case Masquerade:
			return masqueraded
		case SetMark:
			w.mark = w.mark&^t.Mask ^ t.Value
		case MapMark:
			w.mark = w.st.Sets[t.Set.Name(w.st.V6)].Elements[w.element("dst,dst")]
		}
	}
	return through
}

func (w *walk) matches(r Rule) bool {
	dst := w.pkt.Dst.Addr()
	switch {
	case !r.Src.matches(w.pkt.Src), !r.Dst.matches(dst),
		r.In.Name != "" && r.In.matches(w.pkt.In) == r.In.Not,
		r.Proto.Name != "" && (r.Proto.Name == string(w.pkt.Proto)) == r.Proto.Not,
		r.State != "" && r.State != "NEW",
		r.SrcLocal && !w.pkt.Local && !w.local(w.pkt.Src),
		r.DstLocal && !w.local(dst),
		r.Mark.Mask != 0 && (w.mark&r.Mark.Mask == r.Mark.Value) == r.Mark.Not:
		return false
	}
	return !slices.ContainsFunc(r.Sets, func(m Match) bool { return w.in(m) == m.Not })
}

func (n Net) matches(a netip.Addr) bool { return !n.IsValid() || n.Contains(a) != n.Not }

func (i Iface) matches(name string) bool {
	if p, ok := strings.CutSuffix(i.Name, "+"); ok {
		return strings.HasPrefix(name, p)
	}
	return i.Name == name
}

// element is what a packet asks a set for.
func (w *walk) element(by string) Element {
	dst := w.pkt.Dst
	e := Element{Addr: dst.Addr(), Proto: w.pkt.Proto, Port: dst.Port()}
	switch by {
	case "src":
		return Element{Addr: w.pkt.Src}
	case "dst":
		return Element{Addr: dst.Addr()}
	case "dst,dst,src":
		e.Src = host(w.pkt.Src)
	}
	return e
}

func (w *walk) in(m Match) bool {
	e := w.element(m.By)
	if m.Set.Type() == "bitmap:port" {
		e = Element{Port: w.pkt.Dst.Port()}
	}
	set := w.st.Sets[m.Set.Name(w.st.V6)].Elements
	if m.Set.Type() != "hash:ip,port,net" {
		_, in := set[e]
		return in
	}
	for have := range set {
		if have.Src.Contains(w.pkt.Src) && have.Addr == e.Addr && have.Proto == e.Proto && have.Port == e.Port {
			return true
		}
	}
	return false
}

// balance is IPVS: false when it knows no service for the packet.
func (w *walk) balance(v *packet.Verdict) bool {
	key := ServiceKey{Mark: w.mark, V6: w.st.V6}
	svc, known := w.st.Services[key]
	if w.mark == 0 || !known {
		key = ServiceKey{Proto: w.pkt.Proto, Addr: w.pkt.Dst, V6: w.st.V6}
		if svc, known = w.st.Services[key]; !known {
			return false
		}
	}
	v.Action, v.Affinity = packet.Forward, svc.Persist > 0 || byClient(svc.Scheduler)
	w.step("ipvs", "-A %s %s", key.Text(), svc.Options.Text())
	found := w.pkt
	for a, d := range svc.To {
		if d.Weight == 0 {
			continue
		}
		w.pkt.Dst = a
		mark, steps := w.mark, w.steps
		masq := w.hook(Nat, "POSTROUTING") == masqueraded
		w.mark, w.steps = mark, steps
		v.Choices = append(v.Choices, packet.Choice{Endpoint: a, Masquerade: masq})
	}
	w.pkt = found
	choices := v.Sorted().Choices
	for _, c := range choices {
		what := "source is kept"
		if c.Masquerade {
			what = "reached from the node's address"
		}
		w.step("ipvs", "-a %s -r %s, one of %d: %s", key.Text(), c.Endpoint, len(choices), what)
	}
	if len(v.Choices) == 0 {
		w.step("ipvs", "no destination takes new connections: port unreachable")
		*v = packet.Verdict{Action: packet.Reject}
	}
	return true
}

func byClient(scheduler string) bool {
	return scheduler == "sh" || scheduler == "dh" || scheduler == "mh"
}
