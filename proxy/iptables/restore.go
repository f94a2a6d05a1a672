package iptables

import (
	"cmp"
	"iter"
	"slices"

	"fairway/model"
)

// Text is the whole Change as one input of iptables-restore --noflush; each table in it
// takes effect at once.
func (c *Change) Text() string {
	in := input{}
	in.base(c)
	in.groups(c.Groups)
	in.rest(c)
	return in.text()
}

// Batches cuts the Change into several inputs of at most size ServicePorts, to be
// applied in this order: what everything needs, the chains of ServicePorts, then the
// shared chains that lead to them together with the deletions. A batch that fails
// leaves traffic on the rules it had. Where there was nothing, each batch leads to its
// ServicePorts at once, those of the Service first before all others. Each input is
// written when it is its turn.
func (c *Change) Batches(size int, first model.Name) iter.Seq[string] {
	groups := slices.Clone(c.Groups)
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Compare(rank(a.Port.Service == first), rank(b.Port.Service == first))
	})
	var inputs []func(*input)
	switch {
	case len(groups) <= size:
		inputs = append(inputs, func(in *input) { in.base(c); in.groups(groups); in.rest(c) })
	case c.cold:
		inputs = append(inputs, func(in *input) { in.base(c); in.bare(c); in.rest(&Change{hooks: c.hooks}) })
		for g := range slices.Chunk(groups, size) {
			inputs = append(inputs, func(in *input) { in.groups(g); in.lead(g) })
		}
		inputs = append(inputs, func(in *input) { in.rest(&Change{stale: c.stale, empty: c.empty}) })
	default:
		inputs = append(inputs, func(in *input) { in.base(c) })
		for g := range slices.Chunk(groups, size) {
			inputs = append(inputs, func(in *input) { in.groups(g) })
		}
		inputs = append(inputs, func(in *input) { in.rest(c) })
	}
	return func(yield func(string) bool) {
		for _, write := range inputs {
			in := input{}
			write(&in)
			if text := in.text(); text != "" && !yield(text) {
				return
			}
		}
	}
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// Try is an input that loads the chains of some Groups and, in a chain nothing leads
// to, their rules in shared chains: it fails when the kernel refuses any of them, and
// moves no traffic that the Groups would not. The probe chain is in the next listing
// and is deleted by the Change made from it.
func (c *Change) Try(groups []Group) string {
	in := input{}
	in.base(c)
	in.groups(groups)
	probe := [2]placed{{table: Filter, Chain: Chain{Name: probeChain}}, {table: Nat, Chain: Chain{Name: probeChain}}}
	for _, g := range groups {
		for s, rules := range g.set.front(g.part) {
			i := 0
			if shared(s).table() == Nat {
				i = 1
			}
			for _, r := range rules {
				if r.Target.Verb == Jump { // the shared chain to jump to may not be there yet
					r.Target = Target{Verb: Return}
				}
				probe[i].Rules = append(probe[i].Rules, r)
			}
		}
	}
	for _, p := range probe {
		in.write(p)
	}
	return in.text()
}

// input collects the lines of the three tables.
type input [3]section

type section struct{ chains, rules, deletions []byte }

func (in *input) section(table string) *section {
	return &in[slices.Index([]string{Filter, Nat, Mangle}, table)]
}

func (in *input) write(p placed) {
	s := in.section(p.table)
	s.chains = appendDeclaration(s.chains, p.Name)
	s.rules = appendRules(s.rules, p.Chain)
}

func (in *input) base(c *Change) {
	for _, at := range c.ensure {
		in.write(placed{at.table, Chain{Name: at.chain}})
	}
	for _, p := range c.fixed {
		in.write(p)
	}
}

func (in *input) groups(groups []Group) {
	for _, g := range groups {
		for _, one := range g.rules() {
			in.write(placed{Nat, one})
		}
	}
}

// bare creates the shared chains with no ServicePort's rules in them.
func (in *input) bare(c *Change) {
	for s := range sharedChains {
		one := Chain{Name: s.name()}
		if s == natServices {
			one.Rules = c.tail
		}
		in.write(placed{s.table(), one})
	}
}

// lead puts the rules of groups into the shared chains.
func (in *input) lead(groups []Group) {
	var edits [sharedChains]edit
	for _, g := range groups {
		g.set.front(g.part).edit(&edits, front{})
	}
	for s, e := range edits {
		e.place = place{shared(s).table(), shared(s).name()}
		in.edit(e)
	}
}

// edit takes rules away and puts others at the head, so that they come to stand in
// their order.
func (in *input) edit(e edit) {
	s := in.section(e.table)
	for _, r := range e.drop {
		s.rules = append(append(append(s.rules, "-D "...), e.chain...), ' ')
		s.rules = append(r.append(s.rules), '\n')
	}
	for _, r := range slices.Backward(e.add) {
		s.rules = append(append(append(s.rules, "-I "...), e.chain...), ' ')
		s.rules = append(r.append(s.rules), '\n')
	}
}

func (in *input) rest(c *Change) {
	for _, p := range c.shared {
		in.write(p)
	}
	for _, e := range c.edits {
		in.edit(e)
	}
	for _, h := range c.hooks {
		s := in.section(h.table)
		s.rules = append(append(append(s.rules, "-I "...), h.chain...), ' ')
		s.rules = append(h.rule.append(s.rules), '\n')
	}
	for _, at := range c.empty {
		s := in.section(at.table)
		s.chains = appendDeclaration(s.chains, at.chain)
	}
	for _, at := range c.stale {
		s := in.section(at.table)
		s.chains = appendDeclaration(s.chains, at.chain)
		s.deletions = append(append(append(s.deletions, "-X "...), at.chain...), '\n')
	}
}

func (in *input) text() string {
	var b []byte
	for i, table := range []string{Filter, Nat, Mangle} {
		s := in[i]
		if len(s.chains)+len(s.rules)+len(s.deletions) == 0 {
			continue
		}
		b = append(append(append(b, '*'), table...), '\n')
		b = append(append(append(b, s.chains...), s.rules...), s.deletions...)
		b = append(b, "COMMIT\n"...)
	}
	return string(b)
}
