package dns

import (
	"encoding/binary"
	"net/netip"
)

// packer writes one reply. Owner names are pointers into the question, which so keeps
// its spelling in the reply; names in data are written out where RFC 3597 section 4
// asks for it.
type packer struct {
	q     *Query
	out   []byte
	base  int // where the message begins in out
	limit int // where it must end, with room left for OPT
	// answers, authority and additional count the records written.
	answers, authority, additional uint16
	cut                            bool
	zoneAt                         int // where the zone's name begins in the question
	svcAt                          int // where a full svc.<domain> was written, 0 for nowhere
}

const (
	pointer = 0xC000
	// reach is how far into a message a pointer can point.
	reach = 0x4000
	// rrHead is an owner pointer, type, class, TTL and the data's length.
	rrHead = 12
	rrA    = rrHead + 4
	rrAAAA = rrHead + 16
)

// start copies header and question.
func (p *packer) start(dst []byte, q *Query, limit, zoneLabels int) {
	*p = packer{q: q, base: len(dst)}
	p.limit = p.base + limit
	if q.EDNS {
		p.limit -= optLen
	}
	p.out = append(dst, q.msg[:q.end]...)
	p.zoneAt = headerLen + int(q.at[q.labels-zoneLabels])
}

// finish adds OPT and the header's flags and counts.
func (p *packer) finish(rcode Rcode) []byte {
	if p.q.EDNS {
		do := byte(0)
		if p.q.DO {
			do = 0x80
		}
		p.out = append(p.out, 0, 0, 41, ownUDP>>8, ownUDP&0xff, 0, 0, do, 0, 0, 0)
		p.additional++
	}
	h := p.out[p.base:]
	h[2] = 0x84 | h[2]&0x01 // a reply with authority, RD as asked
	if p.cut {
		h[2] |= 0x02
	}
	h[3] = h[3]&0x10 | byte(rcode) // CD as asked
	binary.BigEndian.PutUint16(h[6:], p.answers)
	binary.BigEndian.PutUint16(h[8:], p.authority)
	binary.BigEndian.PutUint16(h[10:], p.additional)
	return p.out
}

// ownUDP is the payload size advertised (DNS flag day 2020).
const ownUDP = 1232

func (p *packer) room() int { return p.limit - len(p.out) }

func (p *packer) u16(v uint16) { p.out = append(p.out, byte(v>>8), byte(v)) }

// rr writes what every record begins with, owned by the name at position at.
func (p *packer) rr(at int, t Type, ttl uint32, length int) {
	p.out = append(p.out, pointer>>8|byte(at>>8), byte(at), byte(t>>8), byte(t), 0, 1,
		byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl), byte(length>>8), byte(length))
}

// addresses copies packed records of one size, beginning at a place that spin chooses,
// and as many as fit.
func (p *packer) addresses(packed string, size int, spin uint32) {
	n := len(packed) / size
	if n == 0 {
		return
	}
	k := min(n, max(p.room(), 0)/size)
	p.cut = p.cut || k < n
	p.answers += uint16(k)
	first := int(spin%uint32(n)) * size
	rest := packed[first:]
	if len(rest) > k*size {
		rest = rest[:k*size]
	}
	p.out = append(p.out, rest...)
	p.out = append(p.out, packed[:k*size-len(rest)]...)
}

// address answers with one address.
func (p *packer) address(a netip.Addr, ttl uint32) {
	if p.room() < rrAAAA { // never with the least size there is
		p.cut = true
		return
	}
	p.answers++
	p.addressAt(headerLen, a, ttl)
}

// addressAt writes an address record owned by the name at position at.
func (p *packer) addressAt(at int, a netip.Addr, ttl uint32) {
	if a.Is4() {
		b := a.As4()
		p.rr(at, TypeA, ttl, 4)
		p.out = append(p.out, b[:]...)
		return
	}
	b := a.As16()
	p.rr(at, TypeAAAA, ttl, 16)
	p.out = append(p.out, b[:]...)
}

// glue adds an address to Additional while there is room; nobody misses it.
func (p *packer) glue(at int, a netip.Addr, ttl uint32) {
	if at < reach && p.room() >= rrAAAA {
		p.additional++
		p.addressAt(at, a, ttl)
	}
}

// packedGlue adds packed records under another owner.
func (p *packer) packedGlue(at int, packed string, size int) {
	for ; at < reach && len(packed) >= size && p.room() >= size; packed = packed[size:] {
		p.additional++
		p.u16(pointer | uint16(at))
		p.out = append(p.out, packed[2:size]...)
	}
}

// service writes an SRV record whose target is label (may be empty) in front of the
// question's name from position svcAt on. It returns the target's position, false when
// the record does not fit.
func (p *packer) service(label string, svcAt int, weight, port uint16, ttl uint32) (int, bool) {
	size := p.serviceLen(label, svcAt)
	if p.room() < size {
		p.cut = true
		return 0, false
	}
	p.rr(headerLen, TypeSRV, ttl, size-rrHead)
	p.u16(0)
	p.u16(weight)
	p.u16(port)
	at := len(p.out) - p.base
	if label != "" {
		p.out = append(append(p.out, byte(len(label))), label...)
	}
	p.out = append(p.out, p.out[p.base+svcAt:p.base+p.q.end-4]...)
	p.answers++
	return at, true
}

// serviceLen is the length of such a record.
func (p *packer) serviceLen(label string, svcAt int) int {
	n := rrHead + 6 + p.q.end - 4 - svcAt
	if label != "" {
		n += 1 + len(label)
	}
	return n
}

// soa writes the zone's SOA record: owner and names are pointers to the question.
func (p *packer) soa(a *apex, answer bool) {
	const length = 7 + 2 + 11 + 2 + 20
	if p.room() < rrHead+length {
		p.cut = true
		return
	}
	p.rr(p.zoneAt, TypeSOA, a.ttl, length)
	p.out = append(p.out, "\x02ns\x03dns"...)
	p.u16(pointer | uint16(p.zoneAt))
	p.out = append(p.out, "\x0ahostmaster"...)
	p.u16(pointer | uint16(p.zoneAt))
	p.out = append(p.out, a.numbers[:]...)
	if answer {
		p.answers++
	} else {
		p.authority++
	}
}
