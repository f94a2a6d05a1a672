package nftables

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"fairway/model"
)

// Shared is the part of the Change no single Service owns: before holds what has to be
// there before any group, after what can go only when all groups are done.
func (c *Change) Shared() (before, after *Change) {
	added := map[elemID]bool{}
	for _, o := range c.Ops {
		if o.Group == NoGroup && o.Action == AddElem {
			added[o.Elem.id()] = true
		}
	}
	// An element that gets another value is deleted and added in one transaction.
	early := func(o Op) bool {
		return o.Action <= AddRule && !o.last() || o.Action == AddElem || o.Action == DelElem && added[o.Elem.id()]
	}
	only := func(keep func(Op) bool) *Change {
		return &Change{Groups: c.Groups, Ops: filter(c.Ops, func(o Op) bool { return o.Group == NoGroup && keep(o) })}
	}
	return only(early), only(func(o Op) bool { return !early(o) })
}

// last tells whether the Op must wait until everything is served: it takes away, or drops
// what nobody serves.
func (o Op) last() bool {
	return o.Action >= EmptyChain || o.Action == AddRule && o.Chain.Name == unallocatedChain
}

// Steps cuts the Change, of which every Op is made, into the transactions it takes. A
// packet under way looks elements up in the newest state, and runs rules as they were
// when it came: it may have met the old frontend and find its endpoint gone, or meet the
// new one and find its chain empty. So chains come before what leads to them, and what
// nothing leads to any more goes after; a chain that changes does so with what leads to
// it, and a range goes with those that come, which may overlap it. A table that is new has
// no packets under way.
func (c *Change) Steps() []*Change {
	added, chains := map[elemID]bool{}, map[*Chain]bool{}
	tables := false
	for _, o := range c.Ops {
		switch o.Action {
		case ResetTable, AddTable:
			tables = true
		case AddChain:
			chains[o.Chain] = true
		case AddElem:
			added[o.Elem.id()] = true
		}
	}
	comes := func(o Op) bool {
		return o.Action == AddSet || (o.Action == AddChain || o.Action == AddRule) && chains[o.Chain]
	}
	var ops [3][]Op
	for _, o := range c.Ops {
		switch {
		case o.last(), o.Action == DelElem && !o.Elem.Kind.Frontend() && !o.Elem.Kind.Interval() && !added[o.Elem.id()]:
			ops[2] = append(ops[2], o)
		case comes(o) && !tables:
			ops[0] = append(ops[0], o)
		default:
			ops[1] = append(ops[1], o)
		}
	}
	var out []*Change
	for _, list := range ops {
		if len(list) > 0 {
			out = append(out, (&Change{Groups: c.Groups, Ops: list}).sorted())
		}
	}
	return out
}

// groups adds the Ops of a group to a list, each made when it is asked for.
func (c *Change) groups() func(ops []Op, g int) []Op {
	end := make([]int, len(c.Groups)+1)
	for i := range c.Ops {
		if g := c.Ops[i].Group; g != NoGroup {
			end[g+1]++
		}
	}
	for g := range c.Groups {
		end[g+1] += end[g]
	}
	all, at := make([]Op, end[len(c.Groups)]), slices.Clone(end)
	for i := range c.Ops {
		if g := c.Ops[i].Group; g != NoGroup {
			all[at[g]] = c.Ops[i]
			at[g]++
		}
	}
	return func(ops []Op, g int) []Op {
		ops = append(ops, all[end[g]:end[g+1]]...)
		if g < len(c.fresh) {
			ops = appendFresh(ops, int32(g), c.fresh[g])
		}
		return ops
	}
}

// appendFresh adds the elements of parts.
func appendFresh(ops []Op, group int32, parts []*Part) []Op {
	for _, p := range parts {
		list := p.Elems()
		for i := range list {
			ops = append(ops, Op{Action: AddElem, V6: list[i].V6, Group: group, Elem: &list[i]})
		}
	}
	return ops
}

// ByGroup gives the part of the Change that each of Groups owns, by its number; empty
// ones are left out. Once the Change's shared part is applied each can be applied by
// itself.
func (c *Change) ByGroup() iter.Seq2[int, *Change] {
	return func(yield func(int, *Change) bool) {
		part := c.groups()
		for g := range c.Groups {
			ops := part(nil, g)
			if len(ops) > 0 && !yield(g, (&Change{Groups: c.Groups, Ops: ops}).sorted()) {
				return
			}
		}
	}
}

// Small tells whether Chunks makes one of the Change.
func (c *Change) Small(limit int) bool { return len(c.fresh) == 0 && len(c.Ops) <= limit }

// Chunks cuts the Change into Changes of about limit Ops that can be applied one after
// the other, each leaving every Service whole: the shared part first, then the
// Services, first among them, and at last what is left over. One chunk is made when it
// is small enough.
func (c *Change) Chunks(limit int, first model.Name) iter.Seq[*Change] {
	return func(yield func(*Change) bool) {
		if c.Small(limit) {
			yield(c)
			return
		}
		before, after := c.Shared()
		if !before.Empty() && !yield(before) || !c.services(limit, first, yield) {
			return
		}
		if !after.Empty() {
			yield(after)
		}
	}
}

// services is the middle of Chunks; false when yield wants no more.
func (c *Change) services(limit int, first model.Name, yield func(*Change) bool) bool {
	part := c.groups()
	var ops []Op // of the chunk in the making; sorting copies them
	ready := func() *Change {
		c := (&Change{Groups: c.Groups, Ops: ops}).sorted()
		ops = ops[:0]
		return c
	}
	take := func(g int, most int) bool {
		ops = part(ops, g)
		return len(ops) == 0 || len(ops) < most || yield(ready())
	}
	at := slices.IndexFunc(c.Groups, func(g []model.Ref) bool {
		return slices.ContainsFunc(g, func(r model.Ref) bool { return r.Name == first })
	})
	if at >= 0 && !take(at, 1) { // by itself, at once
		return false
	}
	for g := range c.Groups {
		if g != at && !take(g, limit) {
			return false
		}
	}
	return len(ops) == 0 || yield(ready())
}

// Resets tells whether a table of another shape is replaced.
func (c *Change) Resets() bool { return len(c.Ops) > 0 && c.Ops[0].Action == ResetTable }

// Whole is the Change with every Op made.
func (c *Change) Whole() *Change {
	if len(c.fresh) == 0 {
		return c
	}
	return &Change{Groups: c.Groups, Ops: slices.Collect(c.All())}
}

// All gives every Op, in the order of the Actions.
func (c *Change) All() iter.Seq[Op] {
	return func(yield func(Op) bool) {
		late := slices.IndexFunc(c.Ops, func(o Op) bool { return o.Action > AddElem })
		if late < 0 {
			late = len(c.Ops)
		}
		for _, o := range c.Ops[:late] {
			if !yield(o) {
				return
			}
		}
		for g, parts := range c.fresh {
			for _, o := range appendFresh(nil, int32(g), parts) {
				if !yield(o) {
					return
				}
			}
		}
		for _, o := range c.Ops[late:] {
			if !yield(o) {
				return
			}
		}
	}
}

// sorted puts Ops into the order of their Actions, and leaves those of one Action in
// theirs.
func (c *Change) sorted() *Change {
	var at [DelTable + 2]int
	for i := range c.Ops {
		at[c.Ops[i].Action+1]++
	}
	for a := range DelTable {
		at[a+1] += at[a]
	}
	out := make([]Op, len(c.Ops))
	for i := range c.Ops {
		a := c.Ops[i].Action
		out[at[a]] = c.Ops[i]
		at[a]++
	}
	c.Ops = out
	return c
}

// Text prints the Change as nft commands, one a line.
func (c *Change) Text() string {
	var b strings.Builder
	for o := range c.All() {
		b.WriteString(o.Text())
		b.WriteByte('\n')
	}
	return b.String()
}

// Lines is Text as a list.
func (c *Change) Lines() []string {
	var out []string
	for o := range c.All() {
		out = append(out, o.Text())
	}
	return out
}

// Text prints the Op as an nft command.
func (o Op) Text() string {
	where := ip(o.V6) + " " + TableName
	switch o.Action {
	case ResetTable, DelTable:
		return "delete table " + where
	case AddTable:
		return "add table " + where
	case AddSet:
		word, name, _ := strings.Cut(o.Set.declaration(), " ")
		return fmt.Sprintf("add %s %s %s { %s; }", word, where, name, strings.Join(o.Set.body(), "; "))
	case DelSet:
		word, name, _ := strings.Cut(o.Set.declaration(), " ")
		return fmt.Sprintf("delete %s %s %s", word, where, name)
	case AddChain:
		if o.Chain.Hook != NoHook {
			return fmt.Sprintf("add chain %s %s { %s }", where, o.Chain.Name, o.Chain.Hook.text())
		}
		return fmt.Sprintf("add chain %s %s", where, o.Chain.Name)
	case FlushChain, EmptyChain:
		return fmt.Sprintf("flush chain %s %s", where, o.Chain.Name)
	case DelChain:
		return fmt.Sprintf("delete chain %s %s", where, o.Chain.Name)
	case AddRule:
		return fmt.Sprintf("add rule %s %s %s", where, o.Chain.Name, o.Rule.Text(o.V6))
	case DelElem:
		return fmt.Sprintf("delete element %s %s { %s }", where, o.Elem.Kind, o.Elem.keyText())
	}
	return fmt.Sprintf("add element %s %s { %s }", where, o.Elem.Kind, o.Elem.text())
}
