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
	// Listed says that the Change is made from a listing; only then Held is known.
	Listed bool
	Held   []Held

	fixed   []placed         // base chains to write
	shared  []placed         // chains of all ServicePorts to write
	edits   []edit           // chains of all ServicePorts of which few rules change
	ensure  []place          // empty chains to create
	hooks   []hook           // jumps to put into the kernel's chains
	stale   []place          // chains to delete
	empty   []place          // chains to empty and leave
	service map[place]string // whose the stale and held chains of a listing were

	// cold says that there was none of the shared chains: they may be filled bit by bit.
	cold bool
	tail []Rule // the last rules of KUBE-SERVICES
}

// edit takes some rules of a chain away and puts others at its head. But for the last
// ones the order of a shared chain is of no consequence: its rules match different
// packets, or do the same.
type edit struct {
	place
	drop, add []Rule
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
	var edits [sharedChains]edit
	for _, p := range fresh {
		was := fronts[p.port.Key]
		delete(fronts, p.port.Key)
		g := Group{Port: p.port, part: p, set: &w.set}
		changed := w.set.front(p).edit(&edits, was)
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
		front{}.edit(&edits, was)
	}
	c.editShared(edits, w)
	for name := range chains {
		c.stale = append(c.stale, place{Nat, name})
	}
	c.sortStale()
}

// editShared changes single rules of shared chains, or writes a chain anew where most of
// it changes: to find a rule that goes the kernel's list is searched each time.
func (c *Change) editShared(edits [sharedChains]edit, w *family) {
	const rulesPerDrop = 20
	for s, e := range edits {
		if len(e.drop)+len(e.add) == 0 {
			continue
		}
		if n := len(w.parts); len(e.add)+rulesPerDrop*len(e.drop) < n {
			e.place = place{shared(s).table(), shared(s).name()}
			c.edits = append(c.edits, e)
			continue
		}
		c.shared = append(c.shared, placed{shared(s).table(), w.shared(shared(s))})
	}
}

// edit notes which rules of a ServicePort in shared chains changed.
func (f front) edit(edits *[sharedChains]edit, was front) bool {
	changed := false
	for s := range f {
		if slices.Equal(f[s], was[s]) {
			continue
		}
		changed = true
		e := &edits[s]
		e.add = append(e.add, without(f[s], was[s])...)
		e.drop = append(e.drop, without(was[s], f[s])...)
	}
	return changed
}

// without is a less the rules of b.
func without(a, b []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(a), func(r Rule) bool { return slices.Contains(b, r) })
}

// equalShared compares the rules of a shared chain; those before the tail may stand in
// any order.
func equalShared(have, want, tail []Rule) bool {
	if len(have) != len(want) {
		return false
	}
	n := len(have) - len(tail)
	if n < 0 || !slices.Equal(have[n:], want[n:]) {
		return false
	}
	left := make(map[Rule]int, n)
	for _, r := range want[:n] {
		left[r]++
	}
	for _, r := range have[:n] {
		if left[r]--; left[r] < 0 {
			return false
		}
	}
	return true
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
	if c.Listed = h.listed != nil; c.Listed {
		c.hold(h.listed, have)
	}
	c.compareHooks(have, w.set.v6)
}

// compareHooks finds the jumps that are missing, and those to our chains that are not
// ours, as kube-proxy leaves one.
func (c *Change) compareHooks(have map[place][]Rule, v6 bool) {
	ours := map[place][]hook{}
	for _, k := range hooks(v6) {
		at := place{k.table, k.chain}
		ours[at] = append(ours[at], k)
		if !slices.Contains(have[at], k.rule) {
			c.hooks = append(c.hooks, k)
		}
	}
	for at, hooks := range ours {
		e := edit{place: at}
		for _, r := range have[at] {
			mine := slices.ContainsFunc(hooks, func(k hook) bool { return k.rule == r })
			if to := r.Target.Chain; !mine && r.Target.Verb == Jump && slices.ContainsFunc(hooks, func(k hook) bool { return k.rule.Target.Chain == to }) {
				e.drop = append(e.drop, r)
			}
		}
		if len(e.drop) > 0 {
			c.edits = append(c.edits, e)
		}
	}
}

// compareShared returns the rules listed in those shared chains that differ.
func (c *Change) compareShared(have map[place][]Rule, w *family) (listed [sharedChains]map[Rule]bool) {
	c.cold, c.tail = true, w.set.tail()
	for s := range sharedChains {
		at := place{s.table(), s.name()}
		one := w.shared(s)
		rules, there := have[at]
		c.cold = c.cold && !there
		var tail []Rule
		if s == natServices {
			tail = c.tail
		}
		if there && (slices.Equal(rules, one.Rules) || equalShared(rules, one.Rules, tail)) {
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
	return len(c.Groups)+len(c.fixed)+len(c.shared)+len(c.edits)+len(c.ensure)+len(c.hooks)+len(c.stale)+len(c.empty) == 0
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
	for _, e := range c.edits {
		for _, r := range e.drop {
			out = append(out, "- "+e.table+" -A "+e.chain+" "+r.Text())
		}
	}
	for _, h := range c.hooks {
		out = append(out, "+ "+h.table+" -A "+h.chain+" "+h.rule.Text())
	}
	for _, at := range slices.Concat(c.stale, c.empty) {
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
