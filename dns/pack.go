package dns

import (
	"unsafe"

	"fairway/model"
)

// apex is what the packed answers of one zone need.
type apex struct {
	name    wireName
	reverse bool
	ttl     uint32
	numbers [20]byte // the SOA's
}

// packedZone is what makes a Zone answer without working a Reply out.
type packedZone struct {
	zones   []apex     // longest name first
	domain  string     // on the wire
	passing []wireName // where upstream is asked for what does not exist
}

// Pack appends the reply to q to dst: the bytes a client gets, at most limit of them,
// cut as truncation asks for. Spin chooses which of several addresses comes first. It
// allocates nothing when dst has room, but for what a Service packs on its first
// question. ok is false for what it leaves to Answer: names of other zones, chains of
// CNAMEs, and the few names of the zone's own.
func (z *Zone) Pack(dst []byte, q *Query, limit int, spin uint32) (reply []byte, rcode Rcode, ok bool) {
	a := z.apexOf(q)
	if a == nil {
		return nil, 0, false
	}
	p := &q.reply
	p.start(dst, q, limit, a.name.labels)
	var what lookup
	m := q.labels - a.name.labels
	switch {
	case m == 0:
		what = p.packApex(a)
	case a.reverse:
		what = z.packReverse(p)
	default:
		what = z.packName(p, m, spin)
	}
	switch what {
	case leave:
		return nil, 0, false
	case denied:
		if z.passes(q) {
			return nil, 0, false
		}
		rcode = NXDomain
	}
	if p.answers == 0 && !p.cut {
		p.soa(a, false)
	}
	return p.finish(rcode), rcode, true
}

// lookup is the outcome of looking a name up.
type lookup uint8

const (
	leave  lookup = iota // to Answer
	exists               // with or without records of the type
	denied
)

func (z *Zone) apexOf(q *Query) *apex {
	for i := range z.packing.zones {
		if a := &z.packing.zones[i]; q.in(a.name) {
			return a
		}
	}
	return nil
}

// passes tells whether upstream is asked for a name that does not exist here.
func (z *Zone) passes(q *Query) bool {
	for i := range z.packing.passing {
		if q.in(z.packing.passing[i]) {
			return true
		}
	}
	return false
}

func (p *packer) packApex(a *apex) lookup {
	switch {
	case p.q.Type == TypeSOA:
		p.soa(a, true)
	case p.q.Type == TypeNS && !a.reverse:
		return leave
	}
	return exists
}

// packName answers for a name m labels below the domain.
func (z *Zone) packName(p *packer, m int, spin uint32) lookup {
	switch last := p.q.label(m - 1); string(last) {
	case "svc":
		return z.packService(p, m-1, spin)
	case "pod":
		return z.packPod(p, m-1)
	case "dns", "dns-version":
		return leave
	}
	return denied
}

// packService answers for a name m labels below svc.
func (z *Zone) packService(p *packer, m int, spin uint32) lookup {
	if m == 0 {
		return exists
	}
	key := model.Name{Namespace: view(p.q.label(m - 1))}
	if m == 1 {
		return existsIf(z.hasNamespace(key.Namespace))
	}
	key.Name = view(p.q.label(m - 2))
	svc, ok := z.services.get(key)
	if !ok {
		return denied
	}
	switch {
	case svc.svc.Type == model.ExternalName && m == 2:
		return leave
	case svc.svc.Type == model.ExternalName:
		return denied
	case svc.svc.Headless:
		return svc.packHeadless(p, m-2, spin)
	case !svc.served():
		return denied
	}
	return svc.packClusterIP(p, m-2, spin)
}

func existsIf(yes bool) lookup {
	if yes {
		return exists
	}
	return denied
}

// packClusterIP answers for a name m labels below the Service's own.
func (s *part) packClusterIP(p *packer, m int, spin uint32) lookup {
	switch {
	case m == 0:
		s.packOwn(p)
		return exists
	case p.q.name[1] == '_':
		return s.packPort(p, m)
	case m > 1:
		return denied
	}
	return s.packHost(p, spin)
}

// packOwn answers for the Service's own name.
func (s *part) packOwn(p *packer) {
	switch p.q.Type {
	case TypeA, TypeAAAA:
		for _, a := range s.svc.ClusterIPs {
			if addressType(a) == p.q.Type {
				p.address(a, s.cfg.TTL)
			}
		}
	case TypeSRV:
		weight := weightOf(len(s.svc.ClusterIPs) * len(s.svc.Ports))
		for i := range s.svc.Ports {
			if _, ok := p.service("", headerLen, weight, s.svc.Ports[i].Port, s.cfg.TTL); !ok {
				return
			}
		}
		if p.answers > 0 {
			s.packGlue(p, headerLen)
		}
	}
}

// packPort answers for _port._proto, and for _proto alone, which exists only as a part
// of the former.
func (s *part) packPort(p *packer, m int) lookup {
	if m > 2 {
		return denied
	}
	proto, ports, found := p.q.label(m - 1)[1:], s.svc.Ports, false
	for i := range ports {
		switch {
		case ports[i].Name == "" || string(proto) != string(ports[i].Protocol):
		case m == 1:
			return exists
		case p.q.name[p.q.at[1]+1] == '_' && equalLower(ports[i].Name, p.q.label(0)[1:]):
			found = true
			s.packOnePort(p, ports[i].Port)
		}
	}
	if p.answers > 0 && !p.cut {
		s.packGlue(p, headerLen+int(p.q.at[2]))
	}
	return existsIf(found)
}

func (s *part) packOnePort(p *packer, port uint16) {
	if p.q.Type == TypeSRV {
		p.service("", headerLen+int(p.q.at[2]), weightOf(len(s.svc.ClusterIPs)), port, s.cfg.TTL)
	}
}

func (s *part) packGlue(p *packer, at int) {
	for _, a := range s.svc.ClusterIPs {
		p.glue(at, a, s.cfg.TTL)
	}
}

// equalLower tells whether name in lower case is b.
func equalLower(name string, b []byte) bool {
	if len(name) != len(b) {
		return false
	}
	for i := range b {
		c := name[i]
		if c-'A' < 26 {
			c += 'a' - 'A'
		}
		if c != b[i] {
			return false
		}
	}
	return true
}

// packHeadless answers for a name m labels below the Service's own.
func (s *part) packHeadless(p *packer, m int, spin uint32) lookup {
	h := s.packed()
	switch {
	case h.odd:
		return leave
	case h.a == "" && h.aaaa == "":
		return denied
	case m > 0 && p.q.name[1] != '_':
		if m > 1 {
			return denied
		}
		return s.packHost(p, spin)
	}
	switch {
	case m == 0 && p.q.Type == TypeA:
		p.addresses(h.a, rrA, spin)
		return exists
	case m == 0 && p.q.Type == TypeAAAA:
		p.addresses(h.aaaa, rrAAAA, spin)
		return exists
	}
	set := h.portSet(view(p.q.name[:p.q.at[m]]))
	if set == nil {
		return existsIf(m == 0)
	}
	if p.q.Type == TypeSRV {
		s.packSet(p, h, set, headerLen+int(p.q.at[m]))
	}
	return exists
}

// packSet writes a set of SRV records, then the addresses of their targets.
func (s *part) packSet(p *packer, h *hosts, set *portSet, svcAt int) {
	at := 0
	for i, r := range set.srv {
		target, ok := p.service(h.label(r), svcAt, r.weight, r.port, s.cfg.TTL)
		if !ok {
			return
		}
		if i == 0 {
			at = target
		}
	}
	for _, r := range set.srv {
		if r.glue {
			p.packedGlue(at, h.names[r.host].a, rrA)
			p.packedGlue(at, h.names[r.host].aaaa, rrAAAA)
		}
		at += p.serviceLen(h.label(r), svcAt)
	}
}

// packHost answers for the name of an endpoint.
func (s *part) packHost(p *packer, spin uint32) lookup {
	h := s.packed()
	if h.odd {
		return leave
	}
	i, ok := h.find(view(p.q.label(0)))
	if !ok {
		return denied
	}
	switch p.q.Type {
	case TypeA:
		p.addresses(h.names[i].a, rrA, spin)
	case TypeAAAA:
		p.addresses(h.names[i].aaaa, rrAAAA, spin)
	}
	return exists
}

// view reads bytes as a string without copying them, for a lookup only.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
