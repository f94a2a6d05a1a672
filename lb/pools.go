package lb

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// pools is the pools in name order with what is needed to choose among them.
type pools struct {
	list       []*model.Pool // by name
	order      []*model.Pool // by serviceAllocation: restricted first, then priority, then name
	namespaces map[string]map[string]string
	nodes      map[netip.Addr]string // addresses no Service may ever get
}

func readPools(snap *model.Snapshot) (pools, []model.Problem) {
	p := pools{list: slices.Clone(snap.Pools), namespaces: snap.NamespaceLabels, nodes: map[netip.Addr]string{}}
	slices.SortFunc(p.list, func(a, b *model.Pool) int { return a.Name.Compare(b.Name) })
	p.order = slices.Clone(p.list)
	slices.SortStableFunc(p.order, func(a, b *model.Pool) int {
		if a.Restricted != b.Restricted {
			if a.Restricted {
				return -1
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	for _, n := range snap.Nodes {
		for _, ip := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
			p.nodes[ip] = n.Name
		}
	}
	return p, append(p.overlaps(), p.nodeAddresses(snap.Nodes)...)
}

// rank is the priority, lower first; 0 is none given and comes last.
func rank(p *model.Pool) int {
	if p.Priority == 0 {
		return math.MaxInt
	}
	return p.Priority
}

func (p pools) overlaps() []model.Problem {
	var out []model.Problem
	for i, b := range p.list {
		for _, a := range p.list[:i] {
			if x, ok := overlap(a, b); ok {
				out = append(out, model.Problem{Object: b.Ref(), Field: "spec.addresses", Reason: "PoolOverlap", Message: fmt.Sprintf(
					"%s is also in pool %s; such addresses count as pool %s's, give each address to one pool only", x, a.Name, a.Name)})
			}
		}
	}
	return out
}

func overlap(a, b *model.Pool) (model.Range, bool) {
	for _, x := range a.Ranges {
		for _, y := range b.Ranges {
			if x.From.BitLen() != y.From.BitLen() {
				continue
			}
			from, to := x.From, x.To
			if from.Less(y.From) {
				from = y.From
			}
			if y.To.Less(to) {
				to = y.To
			}
			if !to.Less(from) {
				return model.Range{From: from, To: to}, true
			}
		}
	}
	return model.Range{}, false
}

func (p pools) nodeAddresses(nodes []*model.Node) []model.Problem {
	var out []model.Problem
	for _, n := range nodes {
		for _, ip := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
			if pool := p.of(ip); pool != nil {
				out = append(out, model.Problem{Object: pool.Ref(), Field: "spec.addresses", Reason: "PoolHasNodeAddress",
					Message: fmt.Sprintf("%s is the address of node %s and is never given to a Service; take it out of the pool", ip, n.Name)})
			}
		}
	}
	return out
}

// of is the pool an address counts as: the first by name that contains it.
func (p pools) of(ip netip.Addr) *model.Pool {
	for _, pool := range p.list {
		if pool.Contains(ip) {
			return pool
		}
	}
	return nil
}

// named finds a pool by the name an annotation gives (MetalLB's pools live in one
// namespace, so the bare name is the key).
func (p pools) named(name string) *model.Pool {
	for _, pool := range p.list {
		if pool.Name.Name == name {
			return pool
		}
	}
	return nil
}

// refuses says why a pool's serviceAllocation does not admit the Service, "" when it
// does. Namespaces (by name or selector) and service selectors must both agree.
func (p pools) refuses(pool *model.Pool, s *model.Service) string {
	byNamespace := len(pool.Namespaces)+len(pool.NamespaceSelectors) > 0
	selects := func(sel model.Selector) bool { return sel.Matches(p.labelsOf(s.Name.Namespace)) }
	if byNamespace && !slices.Contains(pool.Namespaces, s.Name.Namespace) && !slices.ContainsFunc(pool.NamespaceSelectors, selects) {
		if len(pool.NamespaceSelectors) == 0 {
			return "admits only namespaces " + strings.Join(pool.Namespaces, ", ")
		}
		return "its serviceAllocation does not select namespace " + s.Name.Namespace
	}
	matches := func(sel model.Selector) bool { return sel.Matches(s.Labels) }
	if len(pool.ServiceSelectors) > 0 && !slices.ContainsFunc(pool.ServiceSelectors, matches) {
		return "its serviceSelectors do not select this Service's labels"
	}
	return ""
}

// labelsOf adds the label every Namespace has (KEP-2161), so that files without
// Namespace objects work too.
func (p pools) labelsOf(ns string) map[string]string {
	if l, ok := p.namespaces[ns]; ok {
		return l
	}
	return map[string]string{"kubernetes.io/metadata.name": ns}
}

// buggy tells addresses that old equipment takes for a network or broadcast address.
func buggy(ip netip.Addr) bool {
	if !ip.Is4() {
		return false
	}
	last := ip.As4()[3]
	return last == 0 || last == 255
}

func has(pool *model.Pool, v6 bool) bool {
	return slices.ContainsFunc(pool.Ranges, func(r model.Range) bool { return r.From.Is6() == v6 })
}
