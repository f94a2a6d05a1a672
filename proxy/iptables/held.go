package iptables

import (
	"cmp"
	"slices"
	"strings"
)

// Held is a chain of ours nobody needs that the kernel does not let go, because rules of
// others jump to it. A Change empties it and leaves it; one made from a listing without
// those rules deletes it.
type Held struct {
	Table, Chain string
	// Service is the ServicePort it belonged to, as its comments told; "" when none did.
	Service string
	// By lists the chains with the rules, sorted; none when the listing shows none.
	By []string
}

// hold takes the chains that rules of others jump to from what is to be deleted. A chain
// that is empty by now needs nothing more.
func (c *Change) hold(tables []Table, have map[place][]Rule) {
	if len(c.stale) == 0 {
		return
	}
	by := map[place][]string{}
	for _, t := range tables {
		for _, from := range t.Chains {
			if t.written(from.Name) {
				continue
			}
			for _, r := range from.Rules {
				if to := (place{t.Name, r.chain()}); to.chain != "" && !slices.Contains(by[to], from.Name) {
					by[to] = append(by[to], from.Name)
				}
			}
		}
	}
	c.service = make(map[place]string, len(c.stale))
	for _, at := range c.stale {
		c.service[at] = belonged(have[at])
	}
	c.stale = slices.DeleteFunc(c.stale, func(at place) bool {
		from := by[at]
		if len(from) == 0 {
			return false
		}
		slices.Sort(from)
		c.Held = append(c.Held, Held{Table: at.table, Chain: at.chain, Service: c.service[at], By: from})
		if len(have[at]) > 0 {
			c.empty = append(c.empty, at)
		}
		return true
	})
	slices.SortFunc(c.Held, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Chain, b.Chain))
	})
}

// written tells whether what stands in a chain is this package's alone: a Change writes
// it or deletes it, and no foreign rule stays in it.
func (t Table) written(chain string) bool {
	switch chain {
	case Canary, kubeletFW:
		return false
	}
	return t.ours(chain, false)
}

// belonged finds the ServicePort in the comments of a chain's rules.
func belonged(rules []Rule) string {
	for _, r := range rules {
		for _, word := range strings.Fields(r.Comment) {
			if strings.Contains(word, "/") {
				return word
			}
		}
	}
	return ""
}

// Chains lists the chains of the ServicePort that are written.
func (g Group) Chains() []string { return slices.Clone(g.chains) }

// KeepStale makes the Change empty the chains it would have deleted, and leave them as
// Held. It tells whether there are any.
func (c *Change) KeepStale() bool {
	stale := c.stale
	c.empty, c.stale = append(c.empty, stale...), nil
	for _, at := range stale {
		c.Held = append(c.Held, Held{Table: at.table, Chain: at.chain, Service: c.service[at]})
	}
	return len(stale) > 0
}

// Line is what Drift says of the chain.
func (h Held) Line() string { return "- " + h.Table + " :" + h.Chain }
