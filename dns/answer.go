package dns

import (
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// maxChain is the number of CNAMEs followed in one reply.
const maxChain = 10

// found is what a name holds. Its zero value is a name that does not exist.
type found struct {
	exists  bool
	records []Record
	part    *part // of the Service the name belongs to, nil for others
}

// Answer says what a question gets. The owner names of the reply are spelled as the
// question spells them.
func (z *Zone) Answer(q Question) Reply {
	name := canonical(q.Name)
	soa := z.zoneOf(name)
	if soa == nil {
		return Reply{NotOurs: true}
	}
	f := z.find(name, soa)
	if !f.exists {
		if z.fallsThrough(name) {
			return Reply{NotOurs: true}
		}
		return respell(Reply{Rcode: NXDomain, Authority: []Record{*soa}}, q.Name, soa.Name)
	}
	r := z.collect(f, q.Type)
	if len(r.Answer) == 0 || r.Chase == "" && r.Answer[len(r.Answer)-1].Type == TypeCNAME && q.Type != TypeCNAME && q.Type != TypeANY {
		r.Authority = []Record{*soa}
	}
	return respell(r, q.Name, soa.Name)
}

// find looks canonical name up in the zone of soa.
func (z *Zone) find(name string, soa *Record) found {
	if soa.Name != z.cfg.Domain {
		return z.findReverse(name, soa)
	}
	rel := strings.TrimSuffix(strings.TrimSuffix(name, z.cfg.Domain), ".")
	rest, last := cutLast(rel)
	switch last {
	case "":
		return found{exists: true, records: append([]Record{*soa}, z.nameServers()...)}
	case "svc":
		return z.findService(rest)
	case "pod":
		return z.findPod(rest)
	}
	switch rel {
	case "dns":
		return found{exists: true}
	case "ns.dns":
		return found{exists: true, records: z.nameServerAddresses(name)}
	case "dns-version":
		return found{exists: true, records: []Record{{Name: name, Type: TypeTXT, TTL: 28800, Text: "1.1.0"}}}
	}
	return found{}
}

// cutLast splits the last label off: "a.b.c" gives "a.b" and "c".
func cutLast(name string) (rest, last string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

func (z *Zone) findService(rel string) found {
	rest, namespace := cutLast(rel)
	if namespace == "" {
		return found{exists: true}
	}
	rel, name := cutLast(rest)
	if name == "" {
		return found{exists: z.hasNamespace(namespace)}
	}
	p, ok := z.services.get(model.Name{Namespace: namespace, Name: name})
	if !ok {
		return found{}
	}
	n := p.find(rel)
	if n == nil {
		return found{part: p}
	}
	return found{exists: true, records: n.records, part: p}
}

func (z *Zone) findPod(rel string) found {
	label, namespace := cutLast(rel)
	if namespace == "" {
		return found{exists: true}
	}
	if z.cfg.Pods == PodsDisabled || !z.hasNamespace(namespace) {
		return found{}
	}
	if label == "" {
		return found{exists: true}
	}
	a, ok := podAddress(label)
	if !ok {
		return found{}
	}
	if z.cfg.Pods == PodsVerified {
		if _, ok := z.podAt(namespace, a); !ok {
			return found{}
		}
	}
	name := rel + ".pod." + z.cfg.Domain
	return found{exists: true, records: []Record{{Name: name, Type: addressType(a), TTL: z.cfg.TTL, Addr: a}}}
}

// podAddress reads the address in a pod's name: three single dashes make an IPv4
// address, anything else is read as IPv6 with dashes for colons.
func podAddress(label string) (netip.Addr, bool) {
	for _, c := range []byte(label) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return netip.Addr{}, false
		}
	}
	sep := ":"
	if strings.Count(label, "-") == 3 && !strings.Contains(label, "--") {
		sep = "."
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", sep))
	return a.Unmap(), err == nil
}

// findReverse looks for the PTR records of an address. A name that stands for less
// than a whole address is never denied where nobody else decides: addresses may lie
// below it.
func (z *Zone) findReverse(name string, soa *Record) found {
	if name == soa.Name {
		return found{exists: true, records: []Record{*soa}}
	}
	a, whole := reversed(name)
	if !whole {
		return found{exists: partOfAddress(name) && !z.fallsThrough(name)}
	}
	one, owners := z.owners(a)
	if one != nil && owners == nil {
		owners = []*part{one}
	}
	f := found{exists: len(owners) > 0}
	for _, p := range owners {
		for _, t := range p.pointers(a) {
			f.records = append(f.records, Record{Name: name, Type: TypePTR, TTL: z.cfg.TTL, Target: t})
		}
	}
	return f
}

func (z *Zone) fallsThrough(name string) bool {
	for _, zone := range z.cfg.Fallthrough {
		if within(name, zone) {
			return true
		}
	}
	return false
}

// collect takes the records of the type asked for, following CNAMEs. A question for
// ANY is answered with what is least (RFC 8482): the CNAME, else nothing.
func (z *Zone) collect(f found, t Type) Reply {
	var r Reply
	for range maxChain {
		cname, is := first(f.records, TypeCNAME)
		if !is {
			r.add(f, t)
			break
		}
		if slices.ContainsFunc(r.Answer, func(o Record) bool { return o.Name == cname.Name }) {
			break // a circle
		}
		r.Answer = append(r.Answer, cname)
		if t == TypeCNAME || t == TypeANY {
			break
		}
		soa := z.zoneOf(cname.Target)
		if soa == nil {
			r.Chase = cname.Target
			break
		}
		if f = z.find(cname.Target, soa); !f.exists {
			break
		}
	}
	z.addGlue(&r)
	return r
}

func first(records []Record, t Type) (Record, bool) {
	for _, r := range records {
		if r.Type == t {
			return r, true
		}
	}
	return Record{}, false
}

func (r *Reply) add(f found, t Type) {
	for _, rec := range f.records {
		if rec.Type == t {
			r.Answer = append(r.Answer, rec)
		}
	}
}

// addGlue puts the addresses of SRV and NS targets into Additional, each once.
func (z *Zone) addGlue(r *Reply) {
	seen := map[string]bool{}
	for _, rec := range r.Answer {
		if rec.Type != TypeSRV && rec.Type != TypeNS || seen[rec.Target] {
			continue
		}
		seen[rec.Target] = true
		for _, g := range z.find(rec.Target, &z.soa[0]).records {
			if g.Type == TypeA || g.Type == TypeAAAA {
				r.Additional = append(r.Additional, g)
			}
		}
	}
}

// nameServers are the NS records of the domain: the DNS Service's own name, or its
// endpoints' when it is headless, or ns.dns when there is no such Service.
func (z *Zone) nameServers() []Record {
	ns := func(target string) Record {
		return Record{Name: z.cfg.Domain, Type: TypeNS, TTL: z.cfg.TTL, Target: target}
	}
	p, ok := z.services.get(z.cfg.DNSService)
	if !ok {
		return []Record{ns("ns.dns." + z.cfg.Domain)}
	}
	if !p.svc.Headless {
		return []Record{ns(p.fqdn())}
	}
	var out []Record
	seen := map[string]bool{}
	for e := range p.ready() {
		if t := p.endpointName(e) + "." + p.fqdn(); !seen[t] {
			seen[t] = true
			out = append(out, ns(t))
		}
	}
	return out
}

// nameServerAddresses are the addresses behind ns.dns, which the SOA names.
func (z *Zone) nameServerAddresses(name string) []Record {
	p, ok := z.services.get(z.cfg.DNSService)
	if !ok {
		return nil
	}
	n := p.find("")
	if n == nil {
		return nil
	}
	var out []Record
	for _, r := range n.records {
		if r.Type == TypeA || r.Type == TypeAAAA {
			r.Name = name
			out = append(out, r)
		}
	}
	return out
}

// respell gives the reply the question's spelling (RFC 4343): its own name as owner,
// and its spelling of the zone in every name below the zone.
func respell(r Reply, asked, zone string) Reply {
	if !strings.HasSuffix(asked, ".") {
		asked += "."
	}
	name := canonical(asked)
	if name == asked {
		return r
	}
	s := speller{name: name, asked: asked, zone: zone, spelled: asked[len(asked)-len(zone):]}
	s.records(r.Answer)
	s.records(r.Authority)
	s.records(r.Additional)
	return r
}

type speller struct{ name, asked, zone, spelled string }

func (s speller) records(list []Record) {
	for i := range list {
		r := &list[i]
		r.Name, r.Target = s.spell(r.Name), s.spell(r.Target)
		if r.SOA != nil {
			soa := *r.SOA
			soa.MName, soa.RName = s.spell(soa.MName), s.spell(soa.RName)
			r.SOA = &soa
		}
	}
}

func (s speller) spell(name string) string {
	switch {
	case name == s.name:
		return s.asked
	case name != "" && within(name, s.zone):
		return name[:len(name)-len(s.zone)] + s.spelled
	}
	return name
}
