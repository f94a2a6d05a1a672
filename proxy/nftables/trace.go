package nftables

import (
	"encoding/binary"
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
	f := &flow{Packet: pkt, v6: isV6(pkt.Dst.Addr()), part: 1, mine: true}
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
		for _, e := range part.Elems() {
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
	prio uint32 // the class, then the index
	pick SetIndex
	// part is the share of all flows like this one that come here; mine tells that this
	// very client's does, where it follows from its address.
	part float64
	mine bool
}

// effect is what an expression did.
type effect struct {
	kind    effectKind
	chain   string
	targets []target
	detail  string
	// some of the flows only match: part of those that came, this client's among them
	// or not.
	some bool
	part float64
	mine bool
}

// target is a new destination, and which part of the flows get it.
type target struct {
	to   netip.AddrPort
	part float64
	mine bool
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
	kind effectKind
	target
	mark   uint32
	sticky bool
}

type tracer struct {
	*index
	local  func(netip.Addr) bool
	steps  []packet.Step
	sticky bool // the client is remembered, or its address decides
	hashed bool // its address decides
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
				to.part, to.mine = to.part*f.part, to.mine && f.mine
				out = append(out, outcome{kind: dnats, target: to, mark: f.mark, sticky: t.sticky})
			}
			return out, false
		case jumps:
			sub, open := t.chain(eff.chain, f)
			if out = append(out, sub...); !open {
				return out, false
			}
		case goes:
			branch := *f
			if eff.some {
				branch.part, branch.mine = f.part*eff.part, f.mine && eff.mine
				f.part -= branch.part
			}
			sub, open := t.chain(eff.chain, &branch)
			if out = append(out, sub...); !eff.some {
				return out, open
			}
		}
	}
	return out, true
}

// rule evaluates one rule and notes it as a step when it took effect.
func (t *tracer) rule(c *Chain, r Rule, f *flow) effect {
	var some *effect
	var details []string
	last := effect{}
	for _, e := range r {
		last = e.eval(t, f)
		if last.kind == noMatch {
			return last
		}
		if last.some {
			match := last
			some = &match
		}
		if last.detail != "" {
			details = append(details, last.detail)
		}
	}
	if some != nil {
		last.some, last.part, last.mine = true, some.part, some.mine
	}
	what := r.Text(f.v6)
	if len(details) > 0 {
		what += ": " + strings.Join(details, ", ")
	}
	t.step(fmt.Sprintf("table %s %s chain %s", ip(f.v6), TableName, c.Name), what)
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
	shares := map[packet.Choice]target{}
	for _, o := range outs {
		switch o.kind {
		case drops:
			v.Action = packet.Drop
		case rejects:
			v.Action = packet.Reject
		case dnats:
			v.Action = packet.Forward
			c := packet.Choice{Endpoint: o.to, Masquerade: t.masquerades(o, f)}
			share, known := shares[c]
			if !known {
				v.Choices = append(v.Choices, c)
			}
			shares[c] = target{part: share.part + o.part, mine: share.mine || o.mine}
			v.Affinity = v.Affinity || o.sticky
		}
	}
	v = v.Sorted()
	for _, c := range v.Choices {
		t.step("endpoint "+c.Endpoint.String(), t.share(shares[c], f)+"; "+after(f.Packet, c))
	}
	if v.Action == packet.Pass {
		t.step("table "+ip(f.v6)+" "+TableName, "no rule claims "+f.Packet.String())
	}
	return v
}

func (t *tracer) masquerades(o outcome, f *flow) bool {
	after := &flow{Packet: f.Packet, v6: f.v6, mark: o.mark, dnat: true}
	after.Dst = o.to
	post, _ := t.chain("nat-postrouting", after)
	return slices.ContainsFunc(post, func(o outcome) bool { return o.kind == masquerades })
}

// share tells how likely an endpoint is.
func (t *tracer) share(s target, f *flow) string {
	switch {
	case !t.hashed:
		return fmt.Sprintf("probability %.4f", s.part)
	case s.mine:
		return fmt.Sprintf("probability 1 for %s, whose address decides (%.4f over all clients)", f.Src, s.part)
	}
	return fmt.Sprintf("probability 0 for %s, whose address decides (%.4f over all clients)", f.Src, s.part)
}

// after is the packet as it leaves.
func after(p packet.Packet, c packet.Choice) string {
	p.Dst = c.Endpoint
	if c.Masquerade {
		return fmt.Sprintf("leaves as %s (this node) > %s", p.Proto, p.Dst)
	}
	return "leaves as " + p.String()
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
		case Class, Index:
			w.class(f.prio)
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

func (e SetClass) eval(t *tracer, f *flow) effect {
	el, ok := t.elems[elemID{f.v6, e.Set, f.key(e.Set)}]
	if !ok || len(el.Data) != 4 {
		return effect{kind: noMatch}
	}
	f.prio = binary.NativeEndian.Uint32([]byte(el.Data))
	return effect{detail: "{ " + el.text() + " }"}
}

func (e SetIndex) eval(t *tracer, f *flow) effect {
	f.pick = e
	if e.Pick != BySource || e.N == 0 {
		return effect{}
	}
	t.sticky, t.hashed = true, true
	return effect{detail: fmt.Sprintf("jhash of %s is %d of %d", f.Src, slot(f.Src, e.N), e.N)}
}

func (e DNATMap) eval(t *tracer, f *flow) effect {
	out := effect{kind: dnats}
	var found []string
	for i := range f.pick.N {
		f.prio = FirstIndex + i
		el, ok := t.elems[elemID{f.v6, e.Set, f.key(e.Set)}]
		if ok { // a hole leaves the packet alone, as in the kernel
			mine := f.pick.Pick != BySource || slot(f.Src, f.pick.N) == i
			out.targets = append(out.targets, target{el.target(), 1 / float64(f.pick.N), mine})
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

func (ClearPriority) eval(_ *tracer, f *flow) effect {
	f.prio = 0
	return effect{}
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
func (e OneIn) eval(*tracer, *flow) effect {
	return effect{some: e.N > 1, part: 1 / float64(e.N), mine: true}
}

// HashIs stands in a row, one rule for each I.
func (e HashIs) eval(t *tracer, f *flow) effect {
	t.hashed = true
	got := slot(f.Src, e.N)
	return effect{some: true, part: 1 / float64(e.N-e.I), mine: got == e.I,
		detail: fmt.Sprintf("jhash of %s is %d", f.Src, got)}
}

func (Known) eval(*tracer, *flow) effect  { return effect{kind: noMatch} }
func (e Goto) eval(*tracer, *flow) effect { return effect{kind: goes, chain: e.Chain} }
func (e Jump) eval(*tracer, *flow) effect { return effect{kind: jumps, chain: e.Chain} }
func (Drop) eval(*tracer, *flow) effect   { return effect{kind: drops} }
func (Reject) eval(*tracer, *flow) effect { return effect{kind: rejects} }
func (Other) eval(*tracer, *flow) effect  { return effect{kind: noMatch} }

func (Learn) eval(t *tracer, _ *flow) effect {
	t.sticky = true
	return effect{}
}

func (e DNAT) eval(_ *tracer, f *flow) effect {
	if f.Proto != e.Proto {
		return effect{kind: noMatch}
	}
	return effect{kind: dnats, targets: []target{{e.To, 1, true}}}
}
