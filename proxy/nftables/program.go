// Package nftables turns a proxy.Plan into a Program: the two nft tables (ip and ip6,
// both named fairway) of this node. Program has a text (an nft script), a Trace that
// walks it as the kernel would, and a Diff to another Program that is a Change in the
// order the kernel accepts. The layout is shared maps: one lookup of the destination
// gives the flow's class, which is what is done with it and among how many endpoints,
// one chain exists per class, and a Service adds set elements only. The class is a
// plain number, carried in the packet's priority from one lookup to the next: if the
// map led to chains directly, the kernel would check every element of it again for each
// one added (25 ms at 10,000 Services). A Service with session affinity or round robin
// has chains of its own as well, and only then do these costs arise. There is no
// anonymous set: binding one walks the whole transaction. The package chooses no
// endpoint, talks to no kernel and reads no text back.
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
	// class; a listing of the kernel puts every set and chain here.
	shared *Part
	// parts hold what belongs to one ServicePort, in the Plan's order; a listing has
	// one part with every element.
	parts []*Part

	ports    []*proxy.ServicePort // what each of parts was made from
	byUse    map[use]sharedChain
	settings string
	seen     *Expectation // of a listing: what was found as wanted
	strict   bool         // counters must be there or not, as told

	once  sync.Once
	index *index
}

// Options is what is not the Plan's to say.
type Options struct {
	// Counters counts the flows of every frontend in its element.
	Counters bool
}

// Part is what one ServicePort adds, or what all of them share. Elements of a
// ServicePort are made when they are asked for: of a whole cluster they would fill the
// memory.
type Part struct {
	Sets   []Set
	Chains []*Chain

	uses  []use
	fixed []Elem // when there is no port
	port  *proxy.ServicePort
	by    *compiler
}

// Owner is the Service, zero for what is shared or unknown.
func (p *Part) Owner() model.Ref {
	if p.port == nil {
		return model.Ref{}
	}
	return p.port.Ref()
}

// Elems makes the elements.
func (p *Part) Elems() []Elem {
	if p.port == nil {
		return p.fixed
	}
	return p.by.elems(p.port)
}

// Set is a set or map; Kind tells its fields.
type Set struct {
	V6   bool
	Kind Kind
	Name string
	// Counter counts the packets that met each element.
	Counter bool
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

// Listing makes a Program of what a kernel was found to hold. What expected took is
// left out of elems; such a listing can only be compared with the Program that
// expected.
func Listing(v4, v6 bool, sets []Set, chains []*Chain, elems []Elem, expected *Expectation) *Program {
	return &Program{V4: v4, V6: v6, shared: &Part{Sets: sets, Chains: chains}, parts: []*Part{{fixed: elems}}, seen: expected}
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
		for _, e := range part.Elems() {
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
