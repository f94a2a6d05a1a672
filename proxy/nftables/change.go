package nftables

import (
	"fmt"
	"slices"
	"strings"

	"fairway/model"
)

// Shared is the part of the Change no single Service owns: before holds what has to be
// there before any group, after what can go only when all groups are done.
func (c *Change) Shared() (before, after *Change) {
	early := func(o Op) bool { return o.Group == NoGroup && o.Action <= AddRule }
	late := func(o Op) bool { return o.Group == NoGroup && o.Action > AddRule }
	return c.only(early), c.only(late)
}

// ByGroup is the part of the Change that each of Groups owns. Once the Change's shared
// part is applied it can be applied by itself.
func (c *Change) ByGroup() []*Change {
	end := make([]int, len(c.Groups)+1)
	for i := range c.Ops {
		if g := c.Ops[i].Group; g != NoGroup {
			end[g+1]++
		}
	}
	for g := range c.Groups {
		end[g+1] += end[g]
	}
	all := make([]Op, end[len(c.Groups)])
	out := make([]*Change, len(c.Groups))
	for g := range out {
		out[g] = &Change{Groups: c.Groups, Ops: all[end[g]:end[g]:end[g+1]]}
	}
	for i := range c.Ops {
		if g := c.Ops[i].Group; g != NoGroup {
			out[g].Ops = append(out[g].Ops, c.Ops[i])
		}
	}
	return out
}

func (c *Change) only(keep func(Op) bool) *Change {
	return &Change{Groups: c.Groups, Ops: filter(c.Ops, keep)}
}

// Chunks cuts the Change into Changes of about limit Ops that can be applied one after
// the other, each leaving every Service whole: the shared part first, then the
// Services, first among them, and at last what is left over. One chunk is returned when it is small enough.
func (c *Change) Chunks(limit int, first model.Name) []*Change {
	if len(c.Ops) <= limit {
		return []*Change{c}
	}
	before, after := c.Shared()
	groups := c.ByGroup()
	at := slices.IndexFunc(c.Groups, func(g []model.Ref) bool {
		return slices.ContainsFunc(g, func(r model.Ref) bool { return r.Name == first })
	})
	if at > 0 {
		g := groups[at]
		copy(groups[1:at+1], groups[:at])
		groups[0] = g
	}
	out := []*Change{before}
	cur := &Change{Groups: c.Groups}
	for _, g := range groups {
		cur.Ops = append(cur.Ops, g.Ops...)
		if len(cur.Ops) >= limit {
			out = append(out, cur.sorted())
			cur = &Change{Groups: c.Groups}
		}
	}
	out = append(out, cur.sorted(), after)
	return slices.DeleteFunc(out, (*Change).Empty)
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
	for _, o := range c.Ops {
		b.WriteString(o.Text())
		b.WriteByte('\n')
	}
	return b.String()
}

// Lines is Text as a list.
func (c *Change) Lines() []string {
	out := make([]string, len(c.Ops))
	for i, o := range c.Ops {
		out[i] = o.Text()
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
