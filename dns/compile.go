// Package dns works out the cluster domain: a model.Snapshot and a Config come in, an
// immutable Zone goes out that answers any question with plain records (Kubernetes DNS
// specification 1.1.0 and the extensions users expect), prints itself as zone-file
// lines, compares itself with another and explains every answer. It never opens a
// socket, forwards a question, knows the wire format or looks at a clock.
package dns

import (
	"cmp"
	"net/netip"
	"slices"

	"fairway/model"
)

// Zone holds the cluster domain and the reverse zones at one generation.
type Zone struct {
	cfg        *Config
	serial     uint32
	parts      []*part // in the order of Service names
	services   *index[model.Name, *part]
	reverse    *index[netip.Addr, []*part]
	namespaces []string // sorted, those exposed
	pods       []*model.Pod
	podsByIP   map[netip.Addr][]model.Name // nil unless pods are verified
	soa        []Record                    // of the domain, then of each reverse zone
}

// Build makes the Zone of a Snapshot. What depends on an unchanged *model.Service is
// taken over from prev (nil at first); prev itself is returned when nothing changed.
func Build(prev *Zone, snap *model.Snapshot, cfg Config) (*Zone, []model.Problem) {
	cfg = cfg.normal()
	z := &Zone{cfg: &cfg}
	if prev == nil || !prev.cfg.equal(cfg) {
		z.services, z.reverse = newIndex[model.Name, *part](), newIndex[netip.Addr, []*part]()
	} else {
		z.cfg, z.services, z.reverse, z.parts = prev.cfg, prev.services, prev.reverse, prev.parts
	}
	changed := z.takeServices(snap.Services)
	z.takeNamespaces(snap)
	if cfg.Pods == PodsVerified {
		z.takePods(prev, snap.Pods)
	}
	if prev != nil && z.cfg == prev.cfg && !changed &&
		slices.Equal(z.namespaces, prev.namespaces) && slices.Equal(z.pods, prev.pods) {
		return prev, findProblems(prev, snap)
	}
	z.serial = max(cfg.Serial, 1)
	if prev != nil {
		z.serial = max(z.serial, prev.serial+1)
	}
	z.makeSOA()
	return z, findProblems(z, snap)
}

// Domain is the cluster domain in canonical form, as in "cluster.local.".
func (z *Zone) Domain() string { return z.cfg.Domain }

// Serial is the serial number in the zone's SOA records.
func (z *Zone) Serial() uint32 { return z.serial }

// takeServices replaces z's parts (those of the zone before) by those of services,
// and tells whether any differ.
func (z *Zone) takeServices(services []*model.Service) bool {
	old := z.parts
	var gone, come []*part
	now := make([]*part, 0, len(services))
	for _, svc := range services {
		if !z.cfg.exposes(svc.Name.Namespace) {
			continue
		}
		for len(old) > 0 && old[0].svc.Name.Compare(svc.Name) < 0 {
			gone, old = append(gone, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].svc == svc {
			now, old = append(now, old[0]), old[1:]
			continue
		}
		if len(old) > 0 && old[0].svc.Name == svc.Name {
			gone, old = append(gone, old[0]), old[1:]
		}
		p := &part{svc: svc, cfg: z.cfg}
		now, come = append(now, p), append(come, p)
	}
	gone = append(gone, old...)
	if len(gone)+len(come) == 0 {
		return false
	}
	z.parts = now
	z.reindex(gone, come)
	return true
}

func (z *Zone) reindex(gone, come []*part) {
	services := z.services.edit()
	owners := map[netip.Addr]*ownerChange{}
	change := func(a netip.Addr) *ownerChange {
		c := owners[a]
		if c == nil {
			c = &ownerChange{}
			owners[a] = c
		}
		return c
	}
	for _, p := range gone {
		services.remove(p.svc.Name)
		for a := range p.addresses() {
			c := change(a)
			c.gone = append(c.gone, p)
		}
	}
	for _, p := range come {
		services.set(p.svc.Name, p)
		for a := range p.addresses() {
			c := change(a)
			c.come = append(c.come, p)
		}
	}
	reverse := z.reverse.edit()
	for a, c := range owners {
		before, _ := z.reverse.get(a)
		if now := c.apply(before); len(now) > 0 {
			reverse.set(a, now)
		} else {
			reverse.remove(a)
		}
	}
	z.services, z.reverse = services.out, reverse.out
}

// ownerChange is what happens to the Services of one address.
type ownerChange struct{ gone, come []*part }

func (c *ownerChange) apply(before []*part) []*part {
	now := make([]*part, 0, len(before)+len(c.come))
	left := make(map[*part]bool, len(c.gone))
	for _, p := range c.gone {
		left[p] = true
	}
	for _, p := range before {
		if !left[p] {
			now = append(now, p)
		}
	}
	now = append(now, c.come...)
	byName := func(a, b *part) int { return a.svc.Name.Compare(b.svc.Name) }
	if !slices.IsSortedFunc(now, byName) {
		slices.SortFunc(now, byName)
	}
	return now
}

// takeNamespaces collects the namespaces that exist. One that has a Service exists
// even when its object was not given, as with files.
func (z *Zone) takeNamespaces(snap *model.Snapshot) {
	for _, n := range snap.Namespaces {
		if z.cfg.exposes(n) {
			z.namespaces = append(z.namespaces, n)
		}
	}
	last := ""
	for _, p := range z.parts {
		if n := p.svc.Name.Namespace; n != last {
			z.namespaces = append(z.namespaces, n)
			last = n
		}
	}
	slices.Sort(z.namespaces)
	z.namespaces = slices.Compact(z.namespaces)
}

func (z *Zone) hasNamespace(name string) bool {
	_, ok := slices.BinarySearch(z.namespaces, name)
	return ok
}

func (z *Zone) takePods(prev *Zone, pods []*model.Pod) {
	if prev != nil && prev.podsByIP != nil && slices.Equal(prev.pods, pods) {
		z.pods, z.podsByIP = prev.pods, prev.podsByIP
		return
	}
	z.pods, z.podsByIP = pods, make(map[netip.Addr][]model.Name, len(pods))
	for _, p := range pods {
		for _, a := range p.IPs {
			z.podsByIP[a] = append(z.podsByIP[a], p.Name)
		}
	}
}

// podAt finds a Pod of the namespace with address a.
func (z *Zone) podAt(namespace string, a netip.Addr) (model.Name, bool) {
	for _, n := range z.podsByIP[a] {
		if n.Namespace == namespace {
			return n, true
		}
	}
	return model.Name{}, false
}

func (z *Zone) makeSOA() {
	for _, zone := range append([]string{z.cfg.Domain}, z.cfg.Reverse...) {
		z.soa = append(z.soa, Record{Name: zone, Type: TypeSOA, TTL: z.cfg.NegativeTTL, SOA: &SOA{
			MName: "ns.dns." + zone, RName: "hostmaster." + zone, Serial: z.serial,
			Refresh: 7200, Retry: 1800, Expire: 86400, Minimum: z.cfg.NegativeTTL,
		}})
	}
}

// zoneOf finds the SOA of the longest zone that canonical name is in, nil for none.
func (z *Zone) zoneOf(name string) *Record {
	var best *Record
	for i := range z.soa {
		if s := &z.soa[i]; within(name, s.Name) && (best == nil || cmp.Less(len(best.Name), len(s.Name))) {
			best = s
		}
	}
	return best
}
