package ebpf

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"fairway/model"
)

// Change leads from one Program to another. It is made in this order: the Groups' entries
// are put, map by map in the order of Kinds, and only then is anything deleted; at no
// moment does a frontend point at nothing.
type Change struct {
	Groups []Group
	Delete []Entry
}

// Group is what one Service port, or nobody's part, needs written.
type Group struct {
	Service model.Ref // empty for what belongs to no Service
	Put     []Entry
}

// Empty tells whether nothing is to be done.
func (c *Change) Empty() bool { return len(c.Groups) == 0 && len(c.Delete) == 0 }

// Put lists the entries of all groups in the order they are to be written.
func (c *Change) Put() []Entry {
	var out []Entry
	for _, g := range c.Groups {
		out = append(out, g.Put...)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(a.Kind, b.Kind) })
	return out
}

// Diff is the Change from have to want; nil stands for empty maps. Parts that are the
// same by pointer are not looked into.
func Diff(have, want *Program) *Change {
	same := sharedParts(have, want)
	old := map[entryID]string{}
	have.each(func(p *Part) {
		if !same[p] {
			for _, e := range p.Entries {
				old[e.id()] = e.Value
			}
		}
	})
	c := &Change{}
	seen := map[entryID]bool{}
	want.each(func(p *Part) {
		if same[p] {
			return
		}
		var g Group
		for _, e := range p.Entries {
			if seen[e.id()] {
				continue // the address of several ports
			}
			seen[e.id()] = true
			if v, ok := old[e.id()]; ok && v == e.Value {
				delete(old, e.id())
				continue
			}
			delete(old, e.id())
			g.Put = append(g.Put, e)
		}
		if len(g.Put) > 0 {
			if p.Port != nil {
				g.Service = p.Port.Ref()
			}
			c.Groups = append(c.Groups, g)
		}
	})
	c.remove(old, want, same)
	return c
}

func sharedParts(have, want *Program) map[*Part]bool {
	mine := map[*Part]bool{}
	have.each(func(p *Part) { mine[p] = true })
	same := map[*Part]bool{}
	want.each(func(p *Part) {
		if mine[p] {
			same[p] = true
		}
	})
	return same
}

// shared tells the maps whose elements several Service ports may have.
func shared(k Kind) bool { return k == VIPs || k == Fronts }

// remove deletes what is left of old, but not an address some shared part still has.
func (c *Change) remove(old map[entryID]string, want *Program, same map[*Part]bool) {
	if slices.ContainsFunc(slices.Collect(maps.Keys(old)), func(id entryID) bool { return shared(id.kind) }) {
		want.each(func(p *Part) {
			for _, e := range p.Entries {
				if shared(e.Kind) && same[p] {
					delete(old, e.id())
				}
			}
		})
	}
	for id, v := range old {
		c.Delete = append(c.Delete, Entry{id.kind, id.key, v})
	}
	slices.SortFunc(c.Delete, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Kind, a.Kind), strings.Compare(a.Key, b.Key))
	})
}

// Lines says what the Change does, a line per entry.
func (c *Change) Lines() []string {
	var out []string
	for _, e := range c.Put() {
		out = append(out, "update "+e.String())
	}
	for _, e := range c.Delete {
		out = append(out, "delete "+e.String())
	}
	return out
}

// Text is Lines as one text.
func (c *Change) Text() string {
	if c.Empty() {
		return ""
	}
	return strings.Join(c.Lines(), "\n") + "\n"
}
