package iptables

import (
	"cmp"
	"reflect"
	"slices"

	"fairway/proxy"
)

// Change is what brings a family from one Program to another: the chains that differ,
// written whole, and the chains to delete.
type Change struct {
	V6 bool
	// Groups holds the changed chains of each ServicePort.
	Groups []Group

	fixed  []placed // base chains to write
	shared []placed // chains of all ServicePorts to write
	ensure []place  // empty chains to create
	hooks  []hook   // jumps to put into the kernel's chains
	stale  []place  // chains to delete
}

// Group is the part of a Change that belongs to one ServicePort. Its rules are written
// out when they are asked for: of a whole cluster they would fill the memory.
type Group struct {
	Port *proxy.ServicePort

	part   *part
	set    *settings
	chains []string // names of the changed ones, in own's order
}

func (g Group) rules() []Chain {
	left := g.chains
	return slices.DeleteFunc(g.set.own(g.part), func(c Chain) bool {
		if len(left) > 0 && left[0] == c.Name {
			left = left[1:]
			return false
		}
		return true
	})
}

type place struct{ table, chain string }

type placed struct {
	table string
	Chain
}

// Diff compares the Programs of a family. have may be compiled, parsed, or nil when
// the kernel holds nothing. Rules of others are never touched; a compiled have and
// want with the same settings are compared by what changed, without writing out the
// rest.
func Diff(have, want *Program, v6 bool) *Change {
	c := &Change{V6: v6}
	if have == nil {
		have = &Program{}
		have.family(v6).listed = []Table{}
	}
	h, w := have.family(v6), want.family(v6)
	if h.listed == nil && reflect.DeepEqual(h.set, w.set) {
		c.compareParts(h, w)
	} else {
		c.compareTables(h, w)
	}
	return c
}

// compareParts finds changed parts by pointer.
func (c *Change) compareParts(h, w *family) {
	old := make(map[*part]bool, len(h.parts))
	for _, p := range h.parts {
		old[p] = true
	}
	var fresh []*part
	for _, p := range w.parts {
		if !old[p] {
			fresh = append(fresh, p)
		}
		delete(old, p)
	}
	chains := map[string][]Rule{}
	fronts := map[proxy.Key]front{}
	for p := range old { // what is left is gone
		for _, one := range h.set.own(p) {
			chains[one.Name] = one.Rules
		}
		fronts[p.port.Key] = h.set.front(p)
	}
	var touched [sharedChains]bool
	for _, p := range fresh {
		was := fronts[p.port.Key]
		delete(fronts, p.port.Key)
		g := Group{Port: p.port, part: p, set: &w.set}
		changed := w.set.front(p).mark(&touched, was)
		for _, one := range w.set.own(p) {
			rules, there := chains[one.Name]
			delete(chains, one.Name)
			if !there || !slices.Equal(rules, one.Rules) {
				g.chains = append(g.chains, one.Name)
			}
		}
		if changed || len(g.chains) > 0 {
			c.Groups = append(c.Groups, g)
		}
	}
	for _, was := range fronts {
		front{}.mark(&touched, was)
	}
	for s, yes := range touched {
		if yes {
			c.shared = append(c.shared, placed{shared(s).table(), w.shared(shared(s))})
		}
	}
	for name := range chains {
		c.stale = append(c.stale, place{Nat, name})
	}
	c.sortStale()
}

// mark notes in which shared chains a ServicePort's rules changed.
func (f front) mark(touched *[sharedChains]bool, was front) bool {
	any := false
	for s := range f {
		if !slices.Equal(f[s], was[s]) {
			touched[s], any = true, true
		}
	}
	return any
}

// compareTables compares everything written out.
func (c *Change) compareTables(h, w *family) {
	have := index(h.tables())
	for _, table := range []string{Filter, Nat, Mangle} {
		for _, one := range w.set.fixed(table) {
			rules, there := have[place{table, one.Name}]
			switch {
			case len(one.Rules) == 0 && !there: // the kubelet may have filled ours
				c.ensure = append(c.ensure, place{table, one.Name})
			case len(one.Rules) > 0 && !slices.Equal(rules, one.Rules):
				c.fixed = append(c.fixed, placed{table, one})
			}
		}
	}
	listed := c.compareShared(have, w)
	keep := map[string]bool{}
	for _, p := range w.parts {
		g := Group{Port: p.port, part: p, set: &w.set}
		for _, one := range w.set.own(p) {
			keep[one.Name] = true
			if rules, there := have[place{Nat, one.Name}]; !there || !slices.Equal(rules, one.Rules) {
				g.chains = append(g.chains, one.Name)
			}
		}
		if len(g.chains) > 0 || w.set.front(p).missing(listed) {
			c.Groups = append(c.Groups, g)
		}
	}
	for at := range have {
		if at.chain == probeChain || at.table == Nat && ownChain(at.chain) && !keep[at.chain] {
			c.stale = append(c.stale, at)
		}
	}
	c.sortStale()
	for _, k := range hooks() {
		if !slices.Contains(have[place{k.table, k.chain}], k.rule) {
			c.hooks = append(c.hooks, k)
		}
	}
}

// compareShared returns the rules listed in those shared chains that differ.
func (c *Change) compareShared(have map[place][]Rule, w *family) (listed [sharedChains]map[Rule]bool) {
	for s := range sharedChains {
		at := place{s.table(), s.name()}
		one := w.shared(s)
		rules, there := have[at]
		if there && slices.Equal(rules, one.Rules) {
			continue
		}
		c.shared = append(c.shared, placed{s.table(), one})
		listed[s] = make(map[Rule]bool, len(rules))
		for _, r := range rules {
			listed[s][r] = true
		}
	}
	return listed
}

func (f front) missing(listed [sharedChains]map[Rule]bool) bool {
	for s, rules := range f {
		if listed[s] == nil {
			continue
		}
		for _, r := range rules {
			if !listed[s][r] {
				return true
			}
		}
	}
	return false
}

func index(tables []Table) map[place][]Rule {
	out := map[place][]Rule{}
	for _, t := range tables {
		for _, c := range t.Chains {
			out[place{t.Name, c.Name}] = c.Rules
		}
	}
	return out
}

func (c *Change) sortStale() {
	slices.SortFunc(c.stale, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.chain, b.chain))
	})
}

// Empty tells whether there is nothing to do.
func (c *Change) Empty() bool {
	return len(c.Groups)+len(c.fixed)+len(c.shared)+len(c.ensure)+len(c.hooks)+len(c.stale) == 0
}

// Drift lists in which lines have, what the kernel lists, differs from want.
func Drift(have, want *Program, v6 bool) []string {
	c := Diff(have, want, v6)
	was := index(have.family(v6).tables())
	var out []string
	for _, at := range c.ensure {
		out = append(out, "+ "+at.table+" :"+at.chain)
	}
	write := slices.Concat(c.fixed, c.shared)
	for _, g := range c.Groups {
		for _, one := range g.rules() {
			write = append(write, placed{Nat, one})
		}
	}
	for _, w := range write {
		out = append(out, w.drift(was)...)
	}
	for _, h := range c.hooks {
		out = append(out, "+ "+h.table+" -A "+h.chain+" "+h.rule.Text())
	}
	for _, at := range c.stale {
		out = append(out, "- "+at.table+" :"+at.chain)
	}
	return out
}

func (p placed) drift(was map[place][]Rule) []string {
	at := p.table + " -A " + p.Name + " "
	old, there := was[place{p.table, p.Name}]
	var out []string
	if !there {
		out = append(out, "+ "+p.table+" :"+p.Name)
	}
	left := map[Rule]int{}
	for _, r := range p.Rules {
		left[r]++
	}
	for _, r := range old {
		if left[r]--; left[r] < 0 {
			out = append(out, "- "+at+r.Text())
		}
	}
	for _, r := range p.Rules {
		if left[r] > 0 {
			left[r]--
			out = append(out, "+ "+at+r.Text())
		}
	}
	if there && len(out) == 0 {
		out = append(out, "~ "+p.table+" :"+p.Name+" holds the same rules in another order")
	}
	return out
}
