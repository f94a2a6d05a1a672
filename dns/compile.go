// Package dns works out the cluster domain: a model.Snapshot and a Config come in, an
// immutable Zone goes out that answers any question with plain records (Kubernetes DNS
// specification 1.1.0 and the extensions users expect) and nearly all of them with the
// bytes to send, prints itself as zone-file lines, compares itself with another and
// explains every answer. It never opens a socket, forwards a question or looks at a
// clock.
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
	parts      []*part          // in the order of Service names
	from       []*model.Service // what each of parts is of
	services   *index[model.Name, *part]
	reverse    *index[address, *part]   // nil for an address of several
	shared     *index[address, []*part] // the Services of such addresses
	namespaces []string                 // sorted, those exposed
	pods       []*model.Pod
	podsByIP   map[netip.Addr][]model.Name // nil unless pods are verified
	soa        []Record                    // of the domain, then of each reverse zone
	packing    packedZone
	given      []string // the Snapshot's namespaces
	problems   []model.Problem
}

// Build makes the Zone of a Snapshot. What depends on an unchanged *model.Service is
// taken over from prev (nil at first); prev itself is returned when nothing changed.
func Build(prev *Zone, snap *model.Snapshot, cfg Config) (*Zone, []model.Problem) {
	cfg = cfg.normal()
	z := &Zone{cfg: &cfg}
	if prev == nil || !prev.cfg.equal(cfg) {
		z.services, z.reverse, z.shared = newIndex[model.Name, *part](), newIndex[address, *part](), newIndex[address, []*part]()
	} else {
		z.cfg, z.services, z.reverse, z.shared = prev.cfg, prev.services, prev.reverse, prev.shared
		z.parts, z.from = prev.parts, prev.from
	}
	changed := z.takeServices(z.exposed(snap.Services))
	z.takeNamespaces(prev, snap, changed)
	if cfg.Pods == PodsVerified || cfg.AutoPath {
		z.takePods(prev, snap.Pods)
	}
	if prev != nil && z.cfg == prev.cfg && changed.none() &&
		slices.Equal(z.namespaces, prev.namespaces) && slices.Equal(z.pods, prev.pods) {
		return prev, prev.problems
	}
	z.serial = max(cfg.Serial, 1)
	if prev != nil {
		z.serial = max(z.serial, prev.serial+1)
	}
	z.makeSOA()
	z.packing = z.pack()
	z.takeProblems(prev, changed)
	return z, z.problems
}

// Domain is the cluster domain in canonical form, as in "cluster.local.".
func (z *Zone) Domain() string { return z.cfg.Domain }

// Serial is the serial number in the zone's SOA records.
func (z *Zone) Serial() uint32 { return z.serial }

func (z *Zone) exposed(services []*model.Service) []*model.Service {
	if len(z.cfg.Namespaces) == 0 {
		return services
	}
	return slices.DeleteFunc(slices.Clone(services), func(s *model.Service) bool { return !z.cfg.exposes(s.Name.Namespace) })
}

// change is what differs between two zones; a Service that changed is in both.
type change struct{ gone, come []*part }

func (c change) none() bool { return len(c.gone)+len(c.come) == 0 }

// takeServices replaces z's parts (those of the zone before) by those of services. The
// equal beginning and end, which is nearly all of a large cluster, are found by their
// pointers alone.
func (z *Zone) takeServices(services []*model.Service) change {
	first := 0
	for first < len(services) && first < len(z.from) && services[first] == z.from[first] {
		first++
	}
	end, oldEnd := len(services), len(z.from)
	for end > first && oldEnd > first && services[end-1] == z.from[oldEnd-1] {
		end, oldEnd = end-1, oldEnd-1
	}
	z.from = services
	if end == first && oldEnd == first {
		return change{}
	}
	now := append(make([]*part, 0, len(services)), z.parts[:first]...)
	now, c := z.merge(now, z.parts[first:oldEnd], services[first:end])
	z.parts = append(now, z.parts[oldEnd:]...)
	z.reindex(c.gone, c.come)
	return c
}

// merge appends the parts of services to now, taking those that did not change from old.
func (z *Zone) merge(now, old []*part, services []*model.Service) ([]*part, change) {
	var c change
	for _, svc := range services {
		for len(old) > 0 && old[0].svc.Name.Compare(svc.Name) < 0 {
			c.gone, old = append(c.gone, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].svc == svc {
			now, old = append(now, old[0]), old[1:]
			continue
		}
		p := &part{svc: svc, cfg: z.cfg}
		if len(old) > 0 && old[0].svc.Name == svc.Name {
			if old[0].hosts.Load() != nil {
				p.packed() // it is asked for: no query shall wait until this is done
			}
			c.gone, old = append(c.gone, old[0]), old[1:]
		}
		now, c.come = append(now, p), append(c.come, p)
	}
	c.gone = append(c.gone, old...)
	return now, c
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
	reverse, shared := z.reverse.edit(), z.shared.edit()
	for a, c := range owners {
		one, several := z.owners(a)
		if several == nil && one != nil {
			several = []*part{one}
		}
		k, now := newAddress(a), c.apply(several)
		shared.remove(k)
		switch len(now) {
		case 0:
			reverse.remove(k)
		case 1:
			reverse.set(k, now[0])
		default:
			reverse.set(k, nil)
			shared.set(k, now)
		}
	}
	z.services, z.reverse, z.shared = services.out, reverse.out, shared.out
}

// address is an IP address as a key: half the size of a netip.Addr, and nothing in it
// for the garbage collector to follow.
type address [16]byte

func newAddress(a netip.Addr) address { return a.As16() }

// owners are the Services that have address a: one, or several in the order of names.
func (z *Zone) owners(a netip.Addr) (one *part, several []*part) {
	if a.Is4In6() { // written as the IPv6 address it is not served as
		return nil, nil
	}
	k := newAddress(a)
	one, ok := z.reverse.get(k)
	if !ok || one != nil {
		return one, nil
	}
	several, _ = z.shared.get(k)
	return several[0], several
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
func (z *Zone) takeNamespaces(prev *Zone, snap *model.Snapshot, c change) {
	z.given = snap.Namespaces
	if prev != nil && prev.cfg == z.cfg && slices.Equal(prev.given, z.given) && prev.namespaces != nil && prev.holdsAll(c) {
		z.namespaces = prev.namespaces
		return
	}
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

// holdsAll tells whether a change leaves the namespaces as they are: every Service that
// came is in one of them, and none went for good.
func (z *Zone) holdsAll(c change) bool {
	for _, p := range c.come {
		if !z.hasNamespace(p.svc.Name.Namespace) {
			return false
		}
	}
	came := map[model.Name]bool{}
	if len(c.gone) > 0 {
		for _, p := range c.come {
			came[p.svc.Name] = true
		}
	}
	return !slices.ContainsFunc(c.gone, func(p *part) bool { return !came[p.svc.Name] })
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
		if p.Gone {
			continue
		}
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
