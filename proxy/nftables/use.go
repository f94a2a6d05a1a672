package nftables

import (
	"cmp"
	"fmt"
	"slices"

	"fairway/proxy"
)

// use is what a chain shared by all frontends of equal shape does: what, and among how
// many endpoints, chosen how. It fixes the chain's name and the number of its class.
type use struct {
	v6   bool
	what shape
	n, m uint32 // indexes of the Cluster and the Local endpoints
	pick Pick
}

type shape uint8

const (
	useNoEndpoints shape = iota
	useNoLocal
	useInternal
	useExternal
	useLocal
	useRestricted
	useRestrictedLocal
	useNodePort
	useNodePortLocal
)

func (u use) compare(o use) int {
	b := func(v bool) int {
		if v {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b(u.v6), b(o.v6)), cmp.Compare(u.what, o.what), cmp.Compare(u.pick, o.pick), cmp.Compare(u.n, o.n), cmp.Compare(u.m, o.m))
}

func (s shape) String() string {
	return [...]string{"no-endpoints", "no-local-endpoints", "internal", "external", "local", "restricted", "restricted-local", "nodeport", "nodeport-local"}[s]
}

func (u use) name() string {
	s := u.what.String()
	if u.pick == BySource {
		s += "-by-source"
	}
	switch u.what {
	case useNoEndpoints, useNoLocal:
		return s
	case useLocal, useRestrictedLocal, useNodePortLocal:
		return fmt.Sprintf("%s-%d-%d", s, u.n, u.m)
	}
	return fmt.Sprintf("%s-%d", s, u.n)
}

// mostIndexes is how many indexes a class has room for.
const mostIndexes = 4094

// class is the number of the class: shape and n in the upper half, m in the lower. As a
// priority it is out of the way of queueing disciplines, for the one packet of a flow
// that carries it: the lowest four bits, which choose a band, are zero, and no handle
// anybody would give has that upper half.
func (u use) class() uint32 {
	major := u.n
	switch {
	case u.what == useNoEndpoints:
		major = 1
	case u.what == useNoLocal:
		major = 2
	default:
		kind := uint32(u.what-useInternal) + 1
		if u.pick == BySource {
			kind += uint32(useNodePortLocal-useInternal) + 1
		}
		major |= kind << 12
	}
	return major<<16 | (u.m+1)<<4
}

// fits tells whether the class has a number; else the Service gets chains of its own.
func (u use) fits() bool { return u.n <= mostIndexes && u.m < mostIndexes && u.pick != InTurn }

// rules writes the rules of a chain for the use. They lead on to the chain of a pool:
// only that refers to the map, because the kernel looks through all of a map when a
// chain first refers to it (65 ms at 300,000 endpoints).
func (c *compiler) rules(u use) []Rule {
	to := func(kind Kind) Rule { return Rule{SetIndex{u.n, u.pick}, Goto{kind.chain()}} }
	var rules []Rule
	switch u.what {
	case useNoEndpoints:
		rules = []Rule{{Reject{}}}
	case useNoLocal:
		rules = []Rule{{Drop{}}}
	case useInternal:
		rules = c.internalRules(u.v6, to(Endpoints))
	case useExternal, useRestricted:
		rules = []Rule{append(Rule{SetMark{c.mark()}}, to(Endpoints)...)}
	case useNodePort:
		rules = []Rule{append(Rule{SetMark{c.mark()}}, to(NodePortEndpoints)...)}
	case useLocal, useRestrictedLocal:
		rules = c.localRules(u.v6, to(Endpoints), orDrop(LocalEndpoints, u.m, u.pick))
	case useNodePortLocal:
		rules = c.localRules(u.v6, to(NodePortEndpoints), orDrop(NodePortLocalEndpoints, u.m, u.pick))
	}
	if u.what == useRestricted || u.what == useRestrictedLocal {
		rules = append([]Rule{c.firewallRule()}, rules...)
	}
	return rules
}

// sharedChain is the chain of a class and the element that leads to it.
type sharedChain struct {
	chain *Chain
	elem  Elem
}

func (c *compiler) sharedChain(u use) sharedChain {
	var w writer
	w.class(u.class())
	return sharedChain{&Chain{V6: u.v6, Name: u.name(), Rules: c.rules(u)},
		Elem{V6: u.v6, Kind: Classes, Key: string(w.buf), Data: u.name()}}
}

// way is where a frontend leads: a class, or a chain of the Service's own.
type way struct {
	class uint32
	chain string
}

// way asks for the chain of a use among what n and m count of endpoints.
func (b *builder) way(what shape, cluster, local []proxy.Endpoint) way {
	u := use{v6: b.sp.IPv6, what: what, n: uint32(slotsOf(b.sp, cluster)), m: uint32(slotsOf(b.sp, local)), pick: pickOf(b.sp)}
	if u.pick == InTurn && len(cluster) < 2 && len(local) < 2 || !b.sp.HasEndpoints {
		u.pick = Randomly // there is nothing to choose
	}
	if !u.fits() {
		return b.ownChain(u)
	}
	if b.out != nil {
		b.out.uses = append(b.out.uses, u)
	}
	return way{class: u.class()}
}

// ownChain makes the chain of a use that is not shared: in turn, Services have to be
// counted apart.
func (b *builder) ownChain(u use) way {
	name := "own/" + ownName(b.sp.Key) + "/" + u.what.String()
	if b.out != nil && !slices.ContainsFunc(b.out.Chains, func(c *Chain) bool { return c.Name == name }) {
		b.chain(name, b.rules(u)...)
	}
	return way{chain: name}
}

func (b *builder) internalWay() way {
	sp := b.sp
	switch {
	case !sp.HasEndpoints:
		return b.way(useNoEndpoints, nil, nil)
	case sp.InternalLocal && len(sp.Local) == 0:
		return b.way(useNoLocal, nil, nil)
	case sp.Affinity > 0:
		return way{chain: b.own("internal")}
	}
	return b.way(useInternal, sp.Internal(), nil)
}

// externalWay picks the chain of an external frontend: by policy, or the Service's own
// one when it has affinity.
func (b *builder) externalWay(cluster, local shape) way {
	sp := b.sp
	switch {
	case !sp.HasEndpoints:
		return b.way(useNoEndpoints, nil, nil)
	case sp.Affinity > 0 && cluster == useRestricted:
		return way{chain: b.own("restricted")}
	case sp.Affinity > 0:
		return way{chain: b.own("external")}
	case sp.ExternalLocal:
		return b.way(local, sp.Cluster, sp.Local)
	}
	return b.way(cluster, sp.Cluster, nil)
}
