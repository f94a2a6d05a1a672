package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/packet"
)

// Trace walks the Program as the kernel does with the first packet of a flow. local
// tells which addresses are this node's (nft's fib). Where the kernel would choose at
// random, all choices are listed; a client is taken to be a new one.
func (p *Program) Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict {
	p.once.Do(func() { p.index = newIndex(p) })
	t := &tracer{index: p.index, local: local}
	f := &flow{Packet: pkt, v6: isV6(pkt.Dst.Addr())}
	hook := "nat-prerouting"
	if pkt.Local {
		hook = "nat-output"
	}
	out, _ := t.chain(hook, f)
	v := t.verdict(out, f)
	v.Steps = t.steps
	return v.Sorted()
}

// index finds chains and elements by name and key.
type index struct {
	chains map[nameID]*Chain
	elems  map[elemID]Elem
	ranges map[string][]Elem // SourceRanges by the frontend's part of the key
}

func newIndex(p *Program) *index {
	x := &index{chains: map[nameID]*Chain{}, elems: map[elemID]Elem{}, ranges: map[string][]Elem{}}
	p.each(func(part *Part) {
		for _, c := range part.Chains {
			x.chains[c.id()] = c
		}
		for _, e := range part.Elems {
			x.elems[e.id()] = e
			if size := e.Kind.KeySize(e.V6); e.Kind.Interval() && len(e.Key) == 2*size {
				front := e.Key[:size-Saddr.Size(e.V6)]
				x.ranges[front] = append(x.ranges[front], e)
			}
		}
	})
	return x
}

// flow is a packet on its way, with what rules changed about it.
type flow struct {
	packet.Packet
	v6   bool
	mark uint32
	dnat bool
	pick int // the random index
}

// effect is what an expression did.
type effect struct {
	kind    effectKind
	chain   string
	targets []netip.AddrPort
	detail  string
	maybe   bool // the match was one of several possible ones
}

type effectKind uint8

const (
	next effectKind = iota
	noMatch
	jumps
	goes
	drops
	rejects
	dnats
	masquerades
)

// outcome is one way the walk can end.
type outcome struct {
	kind   effectKind
	to     netip.AddrPort
	mark   uint32
	sticky bool
}

type tracer struct {
	*index
	local  func(netip.Addr) bool
	steps  []packet.Step
	sticky bool
}

// chain walks one chain; open is true when some path came to its end.
func (t *tracer) chain(name string, f *flow) (out []outcome, open bool) {
	c := t.chains[nameID{f.v6, name}]
	if c == nil {
		return nil, true
	}
	for _, r := range c.Rules {
		eff := t.rule(c, r, f)
		switch eff.kind {
		case drops, rejects, masquerades:
			return append(out, outcome{kind: eff.kind}), false
		case dnats:
			for _, to := range eff.targets {
				out = append(out, outcome{kind: dnats, to: to, mark: f.mark, sticky: t.sticky})
			}
			return out, false
		case jumps:
			sub, open := t.chain(eff.chain, f)
			if out = append(out, sub...); !open {
				return out, false
			}
		case goes:
			branch := *f
			sub, open := t.chain(eff.chain, &branch)
			if out = append(out, sub...); !eff.maybe {
				return out, open
			}
		}
	}
	return out, true
}

// rule evaluates one rule and notes it as a step when it took effect.
func (t *tracer) rule(c *Chain, r Rule, f *flow) effect {
	maybe, detail := false, ""
	last := effect{}
	for _, e := range r {
		last = e.eval(t, f)
		if last.kind == noMatch {
			return last
		}
		maybe = maybe || last.maybe
		if last.detail != "" {
			detail = ": " + last.detail
		}
	}
	last.maybe = maybe
	t.step(fmt.Sprintf("table %s %s chain %s", ip(f.v6), TableName, c.Name), r.Text(f.v6)+detail)
	return last
}

func (t *tracer) step(where, what string) {
	s := packet.Step{Where: where, What: what}
	if !slices.Contains(t.steps, s) {
		t.steps = append(t.steps, s)
	}
}

// verdict sends every possible new destination through postrouting.
func (t *tracer) verdict(outs []outcome, f *flow) packet.Verdict {
	v := packet.Verdict{Action: packet.Pass}
	for _, o := range outs {
		switch o.kind {
		case drops:
			v.Action = packet.Drop
		case rejects:
			v.Action = packet.Reject
		case dnats:
			v.Action = packet.Forward
			after := &flow{Packet: f.Packet, v6: f.v6, mark: o.mark, dnat: true}
			after.Dst = o.to
			post, _ := t.chain("nat-postrouting", after)
			masq := slices.ContainsFunc(post, func(o outcome) bool { return o.kind == masquerades })
			c := packet.Choice{Endpoint: o.to, Masquerade: masq}
			if !slices.Contains(v.Choices, c) {
				v.Choices = append(v.Choices, c)
			}
			v.Affinity = v.Affinity || o.sticky
		}
	}
	if v.Action == packet.Pass {
		t.step("table "+ip(f.v6)+" "+TableName, "no rule claims "+f.Packet.String())
	}
	return v
}

// key builds the key of a set for the flow.
func (f *flow) key(k Kind) string {
	var w writer
	for _, field := range k.Fields() {
		switch field {
		case Saddr:
			w.addr(f.Src)
		case Daddr:
			w.addr(f.Dst.Addr())
		case L4Proto:
			w.proto(f.Proto)
		case Dport:
			w.port(f.Dst.Port())
		case Index:
			w.index(f.pick)
		}
	}
	return string(w.buf)
}

func matched(ok bool) effect {
	if ok {
		return effect{}
	}
	return effect{kind: noMatch}
}

func (e VMap) eval(t *tracer, f *flow) effect {
	el, ok := t.elems[elemID{f.v6, e.Set, f.key(e.Set)}]
	if !ok {
		return effect{kind: noMatch}
	}
	return effect{kind: goes, chain: el.Data, detail: "{ " + el.text() + " }"}
}

func (e DNATMap) eval(t *tracer, f *flow) effect {
	out := effect{kind: dnats}
	var found []string
	for i := range int(e.N) {
		f.pick = i
		el, ok := t.elems[elemID{f.v6, e.Set, f.key(e.Set)}]
		if ok { // a hole leaves the packet alone, as in the kernel
			out.targets = append(out.targets, el.target())
			found = append(found, el.text())
		}
	}
	if len(found) > 3 {
		found = append(found[:3], fmt.Sprintf("%d more", len(found)-3))
	}
	out.detail = "{ " + strings.Join(found, ", ") + " }"
	return out
}

func (e InSet) eval(t *tracer, f *flow) effect {
	if e.Set.Interval() {
		return matched(t.inRange(f, e.Set) != e.Not)
	}
	_, ok := t.elems[elemID{f.v6, e.Set, f.key(e.Set)}]
	return matched(ok != e.Not)
}

func (t *tracer) inRange(f *flow, k Kind) bool {
	key := f.key(k)
	size := len(key) - Saddr.Size(f.v6)
	src := key[size:]
	return slices.ContainsFunc(t.ranges[key[:size]], func(e Elem) bool {
		first, last := e.Key[size:len(key)], e.Key[len(key)+size:]
		return first <= src && src <= last
	})
}

func (f *flow) addr(field Field) netip.Addr {
	if field == Saddr {
		return f.Src
	}
	return f.Dst.Addr()
}

func (e Addr) eval(_ *tracer, f *flow) effect {
	return matched(e.Prefix.Contains(f.addr(e.Field)) != e.Not)
}

func (e Iif) eval(_ *tracer, f *flow) effect {
	ok := f.In == e.Name
	if e.Prefix {
		ok = strings.HasPrefix(f.In, e.Name)
	}
	return matched(ok != e.Not)
}

func (e FibLocal) eval(t *tracer, f *flow) effect {
	own := e.Field == Saddr && f.Local // what the node sends has its address
	return matched(own || t.local(f.addr(e.Field)))
}

func (e HasMark) eval(_ *tracer, f *flow) effect { return matched(f.mark&e.Bit != 0) }

func (e SetMark) eval(_ *tracer, f *flow) effect {
	f.mark |= e.Bit
	return effect{}
}

func (e FlipMark) eval(_ *tracer, f *flow) effect {
	f.mark ^= e.Bit
	return effect{}
}

func (DNATed) eval(_ *tracer, f *flow) effect { return matched(f.dnat) }
func (Masquerade) eval(*tracer, *flow) effect { return effect{kind: masquerades} }
func (e OneIn) eval(*tracer, *flow) effect    { return effect{maybe: e.N > 1} }
func (Known) eval(*tracer, *flow) effect      { return effect{kind: noMatch} }
func (e Goto) eval(*tracer, *flow) effect     { return effect{kind: goes, chain: e.Chain} }
func (e Jump) eval(*tracer, *flow) effect     { return effect{kind: jumps, chain: e.Chain} }
func (Drop) eval(*tracer, *flow) effect       { return effect{kind: drops} }
func (Reject) eval(*tracer, *flow) effect     { return effect{kind: rejects} }
func (Other) eval(*tracer, *flow) effect      { return effect{kind: noMatch} }

func (Learn) eval(t *tracer, _ *flow) effect {
	t.sticky = true
	return effect{}
}

func (e DNAT) eval(_ *tracer, f *flow) effect {
	if f.Proto != e.Proto {
		return effect{kind: noMatch}
	}
	return effect{kind: dnats, targets: []netip.AddrPort{e.To}}
}
