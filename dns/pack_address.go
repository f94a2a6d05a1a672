package dns

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// packPod answers for a name m labels below pod.
func (z *Zone) packPod(p *packer, m int) lookup {
	if m == 0 {
		return exists
	}
	namespace := view(p.q.label(m - 1))
	if z.cfg.Pods == PodsDisabled || !z.hasNamespace(namespace) || m > 2 {
		return denied
	}
	if m == 1 {
		return exists
	}
	a, ok := p.q.podAddress()
	if !ok {
		return denied
	}
	if z.cfg.Pods == PodsVerified {
		if _, ok := z.podAt(namespace, a); !ok {
			return denied
		}
	}
	if p.q.Type == addressType(a) {
		p.address(a, z.cfg.TTL)
	}
	return exists
}

// podAddress reads the address in the name's first label as podAddress does.
func (q *Query) podAddress() (netip.Addr, bool) {
	label := q.scratch[:copy(q.scratch[:], q.label(0))]
	dashes, double := 0, false
	for i, c := range label {
		switch {
		case c == '-':
			dashes++
			double = double || i > 0 && label[i-1] == '-'
		case c-'0' > 9 && c-'a' > 5:
			return netip.Addr{}, false
		}
	}
	if dashes == 3 && !double {
		return address4(label, '-', false)
	}
	for i, c := range label {
		if c == '-' {
			label[i] = ':'
		}
	}
	a, err := netip.ParseAddr(view(label))
	return a.Unmap(), err == nil
}

// address4 reads four numbers with sep between them, the last one first when turned.
func address4(s []byte, sep byte, turned bool) (netip.Addr, bool) {
	var b [4]byte
	for i := range 4 {
		n, digits := 0, 0
		for len(s) > digits && s[digits]-'0' <= 9 {
			if n = n*10 + int(s[digits]-'0'); n > 255 || digits > 0 && s[0] == '0' {
				return netip.Addr{}, false
			}
			digits++
		}
		if digits == 0 || i < 3 && (len(s) == digits || s[digits] != sep) || i == 3 && len(s) != digits {
			return netip.Addr{}, false
		}
		if s = s[digits:]; i < 3 {
			s = s[1:]
		}
		if turned {
			b[3-i] = byte(n)
		} else {
			b[i] = byte(n)
		}
	}
	return netip.AddrFrom4(b), true
}

// reversed reads the address the name stands for; false when it is not the name of one
// whole address.
func (q *Query) reversed() (netip.Addr, bool) {
	switch {
	case q.labels == 6 && string(q.label(4)) == "in-addr" && string(q.label(5)) == "arpa":
		b := q.scratch[:0]
		for i := range 4 {
			l := q.label(i)
			if len(l) > 3 {
				return netip.Addr{}, false
			}
			b = append(append(b, l...), '.')
		}
		return address4(b[:len(b)-1], '.', true)
	case q.labels == 34 && string(q.label(32)) == "ip6" && string(q.label(33)) == "arpa":
		return q.reversed6()
	}
	return netip.Addr{}, false
}

func (q *Query) reversed6() (netip.Addr, bool) {
	var b [16]byte
	for i := range 32 {
		l := q.label(i)
		c := strings.IndexByte("0123456789abcdef", l[0])
		if len(l) != 1 || c < 0 {
			return netip.Addr{}, false
		}
		b[15-i/2] |= byte(c) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b), true
}

// packReverse answers for a name below a zone of addresses.
func (z *Zone) packReverse(p *packer) lookup {
	a, whole := p.q.reversed()
	if !whole {
		if z.passes(p.q) {
			return leave
		}
		return existsIf(p.q.partOfAddress())
	}
	owner, others := z.owners(a)
	if owner == nil {
		return denied
	}
	w := pointerWriter{p: p, z: z, a: a}
	if others == nil {
		w.part(owner)
	}
	for _, o := range others {
		w.part(o)
	}
	if w.odd {
		return leave
	}
	return exists
}

// partOfAddress tells whether the name stands for a prefix of addresses. Few ask.
func (q *Query) partOfAddress() bool {
	var b strings.Builder
	for i := range q.labels {
		b.Write(q.label(i))
		b.WriteByte('.')
	}
	return partOfAddress(b.String())
}

// pointerWriter writes the PTR records of one address.
type pointerWriter struct {
	p   *packer
	z   *Zone
	a   netip.Addr
	odd bool
}

// part writes those of one Service, each name once.
func (w *pointerWriter) part(s *part) {
	if slices.Contains(s.svc.ClusterIPs, w.a) && s.served() {
		w.write(s, nil)
	}
	if s.svc.Type == model.ExternalName || !s.svc.Headless && !s.served() {
		return
	}
	list := s.svc.Endpoints // in address order
	i, _ := slices.BinarySearchFunc(list, w.a, func(e *model.Endpoint, a netip.Addr) int { return e.Addr.Compare(a) })
	for first := i; i < len(list) && list[i].Addr == w.a; i++ {
		if e := list[i]; e.Ready && !s.named(list[first:i], e) {
			w.write(s, e)
		}
	}
}

// named tells whether one of list, endpoints of the same address, has e's name.
func (s *part) named(list []*model.Endpoint, e *model.Endpoint) bool {
	for _, o := range list {
		if o.Ready && strings.EqualFold(s.givenName(o), s.givenName(e)) {
			return true
		}
	}
	return false
}

// write adds a record whose target is the Service's name or, with e, the endpoint's.
func (w *pointerWriter) write(s *part, e *model.Endpoint) {
	if w.odd || w.p.q.Type != TypePTR || w.p.cut {
		return
	}
	var buf [66]byte // on the stack
	label := buf[:0]
	if e != nil {
		label = s.appendEndpointName(label, e)
	}
	n := s.svc.Name
	if !fitsLabel(n.Name) || !fitsLabel(n.Namespace) {
		w.odd = true
		return
	}
	w.p.pointTo(label, n, w.z, s.cfg.TTL)
}

// pointTo writes a PTR record; from the second on its target ends in a pointer to the
// first's.
func (p *packer) pointTo(label []byte, n model.Name, z *Zone, ttl uint32) {
	domain := z.packing.domain
	length := len(n.Name) + len(n.Namespace) + 2 + 2
	if p.svcAt == 0 {
		length += 2 + len(domain)
	}
	if len(label) > 0 {
		length += 1 + len(label)
	}
	if p.room() < rrHead+length {
		p.cut = true
		return
	}
	p.rr(headerLen, TypePTR, ttl, length)
	if len(label) > 0 {
		p.out = append(append(p.out, byte(len(label))), label...)
	}
	p.out = append(append(p.out, byte(len(n.Name))), n.Name...)
	p.out = append(append(p.out, byte(len(n.Namespace))), n.Namespace...)
	if p.answers++; p.svcAt > 0 {
		p.u16(pointer | uint16(p.svcAt))
		return
	}
	p.svcAt = len(p.out) - p.base
	p.out = append(append(p.out, "\x03svc"...), domain...)
}

// appendEndpointName is endpointName without a string.
func (s *part) appendEndpointName(b []byte, e *model.Endpoint) []byte {
	if name := s.givenName(e); name != "" {
		return lowerBytes(append(b, name...))
	}
	b = e.Addr.AppendTo(b)
	for i, c := range b {
		if c == '.' || c == ':' {
			b[i] = '-'
		}
	}
	if b[len(b)-1] == '-' {
		b = append(b, '0')
	}
	return b
}

func lowerBytes(b []byte) []byte {
	for i, c := range b {
		if c-'A' < 26 {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}

// pack prepares the zones served, the longest name first; none when a name of them or
// of Fallthrough cannot be on the wire, and every question is left to Answer.
func (z *Zone) pack() packedZone {
	var out packedZone
	for i := range z.soa {
		s := &z.soa[i]
		w, ok := newWireName(s.Name)
		if !ok {
			return packedZone{}
		}
		a := apex{name: w, reverse: i > 0, ttl: s.TTL}
		for j, v := range []uint32{s.SOA.Serial, s.SOA.Refresh, s.SOA.Retry, s.SOA.Expire, s.SOA.Minimum} {
			binary.BigEndian.PutUint32(a.numbers[4*j:], v)
		}
		out.zones = append(out.zones, a)
	}
	out.domain = out.zones[0].name.wire
	slices.SortStableFunc(out.zones, func(a, b apex) int { return cmp.Compare(len(b.name.wire), len(a.name.wire)) })
	for _, f := range z.cfg.Fallthrough {
		w, ok := newWireName(f)
		if !ok {
			return packedZone{}
		}
		out.passing = append(out.passing, w)
	}
	return out
}
