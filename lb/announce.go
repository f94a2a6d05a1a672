package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// labelExclude keeps a node out of every external balancer (KEP-1143).
const labelExclude = "node.kubernetes.io/exclude-from-external-load-balancers"

// Announcement is one address that Services hold in status, and who answers for it.
type Announcement struct {
	Addr     netip.Addr
	Services []*model.Service // by name; more than one when it is shared
	Pool     *model.Pool      // nil when the address is in no pool
	// Node answers by ARP or NDP; empty when nobody may.
	Node string
	// Interfaces are the ones Node answers on; empty means every suitable one.
	Interfaces []string
}

// Announce chooses the node for every address our Services hold in status. live tells
// which nodes renew their Lease; nil counts every node as live (offline use). A
// Problem is made for every address nobody announces.
func Announce(snap *model.Snapshot, cfg Config, live map[string]bool) ([]Announcement, []model.Problem) {
	f := newField(snap, cfg, live)
	out := make([]Announcement, 0, len(f.holders))
	var problems []model.Problem
	for addr, svcs := range f.holders {
		an := Announcement{Addr: addr, Services: svcs, Pool: f.pools.of(addr)}
		candidates := f.candidates(an)
		an.Node = choose(addr, candidates)
		if an.Node == "" && an.Pool != nil {
			_, whys := Owner(addr, candidates)
			problems = append(problems, f.unannounced(an, whys)...)
		} else if an.Node != "" {
			an.Interfaces = f.interfaces(an)
		}
		out = append(out, an)
	}
	slices.SortFunc(out, func(a, b Announcement) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(problems, func(a, b model.Problem) int {
		return cmp.Or(a.Object.Compare(b.Object.Name), cmp.Compare(a.Message, b.Message))
	})
	return out, problems
}

// OnNode is what one node has to answer for: address to interfaces.
func OnNode(list []Announcement, node string) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for _, an := range list {
		if an.Node == node && node != "" {
			out[an.Addr] = an.Interfaces
		}
	}
	return out
}

// field is what the choice of owners needs, read once per pass.
type field struct {
	snap    *model.Snapshot
	ads     []*model.L2Advertisement // by name
	pools   pools
	holders map[netip.Addr][]*model.Service
	nodes   []Candidate // blocked for reasons of the node itself
	labels  map[string]map[string]string
}

func newField(snap *model.Snapshot, cfg Config, live map[string]bool) *field {
	f := &field{snap: snap, holders: map[netip.Addr][]*model.Service{}, labels: map[string]map[string]string{}}
	f.pools, _ = readPools(snap)
	f.ads = slices.Clone(snap.L2)
	slices.SortFunc(f.ads, func(a, b *model.L2Advertisement) int { return a.Name.Compare(b.Name) })
	for _, s := range snap.Services {
		if !cfg.Serves(s) || s.Deleting {
			continue
		}
		for _, in := range s.Ingress {
			if in.IP.IsValid() && !in.Proxy && !slices.Contains(f.holders[in.IP], s) {
				f.holders[in.IP] = append(f.holders[in.IP], s)
			}
		}
	}
	f.readNodes(live)
	return f
}

// readNodes blocks nodes for what they are. When no node at all is Ready the condition
// says nothing about them (files often carry none) and is not looked at.
func (f *field) readNodes(live map[string]bool) {
	anyReady := slices.ContainsFunc(f.snap.Nodes, func(n *model.Node) bool { return n.Ready })
	for _, n := range f.snap.Nodes {
		c := Candidate{Node: n.Name}
		_, excluded := n.Labels[labelExclude]
		switch {
		case excluded:
			c.Blocked = "has the label " + labelExclude
		case n.Leaving:
			c.Blocked = "is being removed"
		case anyReady && !n.Ready:
			c.Blocked = "is not Ready"
		case live != nil && !live[n.Name]:
			c.Blocked = "does not renew its Lease"
		}
		f.nodes = append(f.nodes, c)
		f.labels[n.Name] = n.Labels
	}
	if len(f.snap.Nodes) > 0 {
		return
	}
	for name, ok := range live { // files without Nodes: those that run are the nodes
		if ok {
			f.nodes = append(f.nodes, Candidate{Node: name})
		}
	}
	slices.SortFunc(f.nodes, func(a, b Candidate) int { return cmp.Compare(a.Node, b.Node) })
}

// candidates adds to the nodes' own blockers what this address asks of them.
func (f *field) candidates(an Announcement) []Candidate {
	ads, none := f.advertisements(an)
	out := slices.Clone(f.nodes)
	local := f.localNodes(an)
	for i := range out {
		c := &out[i]
		if c.Blocked != "" {
			continue
		}
		selects := func(ad *model.L2Advertisement) bool { return f.selectsNode(ad, c.Node) }
		switch {
		case none != "":
			c.Blocked = none
		case !slices.ContainsFunc(ads, selects):
			c.Blocked = "no L2Advertisement's nodeSelectors select it"
		case local != nil && !local[c.Node]:
			c.Blocked = "has no ready endpoint (externalTrafficPolicy Local)"
		}
	}
	return out
}

// advertisements are those that announce the address, or why there are none.
func (f *field) advertisements(an Announcement) ([]*model.L2Advertisement, string) {
	if an.Pool == nil {
		return nil, "the address is in no IPAddressPool"
	}
	var out []*model.L2Advertisement
	shared := false
	for _, ad := range f.ads {
		if !selectsPool(ad, an.Pool) {
			continue
		}
		if len(ad.ServiceSelectors) > 0 && len(an.Services) > 1 {
			shared = true // one owner cannot follow two Services' wishes
			continue
		}
		if len(ad.ServiceSelectors) == 0 || matchesAny(ad.ServiceSelectors, an.Services[0].Labels) {
			out = append(out, ad)
		}
	}
	switch {
	case len(out) > 0:
		return out, ""
	case len(f.ads) == 0:
		return nil, "there is no L2Advertisement"
	case shared:
		return nil, "the L2Advertisement has serviceSelectors, which do not go with a shared address"
	}
	return nil, "no L2Advertisement selects pool " + an.Pool.Name.Name + " for it"
}

// selectsPool: an advertisement that names no pool and selects none is for all.
func selectsPool(ad *model.L2Advertisement, p *model.Pool) bool {
	if len(ad.Pools)+len(ad.PoolSelectors) == 0 {
		return true
	}
	return slices.Contains(ad.Pools, p.Name.Name) || matchesAny(ad.PoolSelectors, p.Labels)
}

func (f *field) selectsNode(ad *model.L2Advertisement, node string) bool {
	return len(ad.NodeSelectors) == 0 || matchesAny(ad.NodeSelectors, f.labels[node])
}

func matchesAny(sels []model.Selector, labels map[string]string) bool {
	return slices.ContainsFunc(sels, func(s model.Selector) bool { return s.Matches(labels) })
}

// localNodes are the nodes every Service with externalTrafficPolicy Local on the
// address has an endpoint on; nil when any node will do. A Service without a usable
// endpoint anywhere asks for no node: wherever it is announced, clients are refused at
// once instead of waiting.
func (f *field) localNodes(an Announcement) map[string]bool {
	var out map[string]bool
	for _, s := range an.Services {
		if !s.ExternalLocal {
			continue
		}
		nodes := endpointNodes(s, an.Addr.Is6())
		if len(nodes) == 0 {
			continue
		}
		if out == nil {
			out = nodes
			continue
		}
		for n := range out {
			if !nodes[n] {
				delete(out, n)
			}
		}
	}
	return out
}

// endpointNodes are the nodes with a ready endpoint or, when no node has one, with one
// that still serves while it terminates (KEP-1669).
func endpointNodes(s *model.Service, v6 bool) map[string]bool {
	ready, draining := map[string]bool{}, map[string]bool{}
	for _, e := range s.Endpoints {
		if e.Addr.Is6() != v6 || e.Node == "" {
			continue
		}
		if e.Ready {
			ready[e.Node] = true
		} else if e.Serving && e.Terminating {
			draining[e.Node] = true
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return draining
}

// interfaces joins those of the advertisements that select the owner; one without a
// list means all.
func (f *field) interfaces(an Announcement) []string {
	ads, _ := f.advertisements(an)
	var out []string
	for _, ad := range ads {
		if !f.selectsNode(ad, an.Node) {
			continue
		}
		if len(ad.Interfaces) == 0 {
			return nil
		}
		out = append(out, ad.Interfaces...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unannounced tells every holder of an address why nobody answers for it.
func (f *field) unannounced(an Announcement, whys []Why) []model.Problem {
	reason := "NotAnnounced"
	if len(f.ads) == 0 {
		reason = "NoAdvertisement"
	}
	text := fmt.Sprintf("no node announces %s: %s", an.Addr, joinWhys(whys))
	if reason == "NoAdvertisement" {
		text = fmt.Sprintf("no node announces %s of pool %s: there is no L2Advertisement; create one (metallb.io/v1beta1)", an.Addr, an.Pool.Name.Name)
	}
	var out []model.Problem
	for _, s := range an.Services {
		out = append(out, s.Problem("status.loadBalancer", reason, text))
	}
	return out
}

// joinWhys groups nodes by reason, so that a large cluster's text stays short.
func joinWhys(whys []Why) string {
	if len(whys) == 0 {
		return "no node is known"
	}
	var order []string
	byReason := map[string][]string{}
	for _, w := range whys {
		if byReason[w.Reason] == nil {
			order = append(order, w.Reason)
		}
		byReason[w.Reason] = append(byReason[w.Reason], w.Node)
	}
	var parts []string
	for _, r := range order {
		nodes := byReason[r]
		if len(nodes) > 3 {
			nodes = append(nodes[:3:3], fmt.Sprintf("%d more", len(byReason[r])-3))
		}
		parts = append(parts, strings.Join(nodes, ", ")+" "+r)
	}
	return strings.Join(parts, "; ")
}
