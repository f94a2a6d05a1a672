// Package nftables turns a proxy.Plan into a Program: the two nft tables (ip and ip6,
// both named fairway) of this node. Program has a text (an nft script), a Trace that
// walks it as the kernel would, and a Diff to another Program that is a Change in the
// order the kernel accepts. The layout is shared maps: one lookup of the destination
// decides, one chain exists per distinct number of endpoints, and a Service adds set
// elements only; a Service with session affinity has chains of its own as well. The
// package chooses no endpoint, talks to no kernel and reads no text back.
package nftables

import (
	"net/netip"
	"sync"

	"fairway/model"
	"fairway/proxy"
)

// TableName is the name of both tables.
const TableName = "fairway"

// Program is the whole ruleset of both tables. It is never changed once made.
type Program struct {
	// V4 and V6 tell which tables exist.
	V4, V6 bool
	// shared holds the sets of the layout, the base chains and the chains per
	// number of endpoints; a listing of the kernel puts every set and chain here.
	shared *Part
	// parts hold what belongs to one ServicePort, in the Plan's order; a listing has
	// one part with every element.
	parts []*Part

	ports    []*proxy.ServicePort // what each of parts was made from
	byUse    map[use]*Chain
	settings string

	once  sync.Once
	index *index
}

// Part is what one ServicePort adds, or what all of them share.
type Part struct {
	// Owner is the Service, zero for what is shared or unknown.
	Owner  model.Ref
	Sets   []Set
	Chains []*Chain
	Elems  []Elem

	uses []use
}

// Set is a set or map; Kind tells its fields.
type Set struct {
	V6   bool
	Kind Kind
	Name string
}

// Chain is a chain with its rules. Hook is empty for one that is only jumped to.
type Chain struct {
	V6    bool
	Name  string
	Hook  Hook
	Rules []Rule
}

// Hook names a netfilter hook of a nat base chain.
type Hook string

// The hooks in use. Nat chains see the first packet of a flow only.
const (
	NoHook      Hook = ""
	Prerouting  Hook = "prerouting"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// Priority is the hook's netfilter priority: dstnat or srcnat.
func (h Hook) Priority() int32 {
	if h == Postrouting {
		return 100
	}
	return -100
}

// Elem is an element of one of the layout's sets. Key and Data are the bytes the
// kernel holds (each field padded to 4 bytes, ports in network order); for a verdict
// map Data is the name of the chain to go to. An interval's Key is its first key
// followed by its last.
type Elem struct {
	V6      bool
	Kind    Kind
	Key     string
	Data    string
	Comment string
}

// Listing makes a Program of what a kernel was found to hold.
func Listing(v4, v6 bool, sets []Set, chains []*Chain, elems []Elem) *Program {
	return &Program{V4: v4, V6: v6, shared: &Part{Sets: sets, Chains: chains}, parts: []*Part{{Elems: elems}}}
}

// Sets lists every set of the Program, the layout's own first.
func (p *Program) Sets() []Set {
	var out []Set
	p.each(func(part *Part) { out = append(out, part.Sets...) })
	return out
}

// Chains lists every chain of the Program.
func (p *Program) Chains() []*Chain {
	var out []*Chain
	p.each(func(part *Part) { out = append(out, part.Chains...) })
	return out
}

// Elems lists every element once.
func (p *Program) Elems() []Elem {
	var out []Elem
	seen := map[elemID]bool{}
	p.each(func(part *Part) {
		for _, e := range part.Elems {
			if e.Kind.shared() {
				if seen[e.id()] {
					continue
				}
				seen[e.id()] = true
			}
			out = append(out, e)
		}
	})
	return out
}

func (p *Program) each(visit func(*Part)) {
	if p == nil {
		return
	}
	if p.shared != nil {
		visit(p.shared)
	}
	for _, part := range p.parts {
		visit(part)
	}
}

// has tells whether the table of a family exists.
func (p *Program) has(v6 bool) bool {
	if v6 {
		return p.V6
	}
	return p.V4
}

type elemID struct {
	v6   bool
	kind Kind
	key  string
}

func (e Elem) id() elemID { return elemID{e.V6, e.Kind, e.Key} }

type nameID struct {
	v6   bool
	name string
}

func (s Set) id() nameID    { return nameID{s.V6, s.Name} }
func (c *Chain) id() nameID { return nameID{c.V6, c.Name} }

func isV6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }
