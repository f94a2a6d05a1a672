package announce

import (
	"encoding/binary"
	"net/netip"
)

const (
	icmpv6          = 58
	ndSolicitation  = 135
	ndAdvertisement = 136
	ndLen           = etherLen + 40 + 24
	optionSource    = 1
	optionTarget    = 2
	flagSolicited   = 0x40
	flagOverride    = 0x20
)

// Neighbour is a neighbour solicitation or advertisement (RFC 4861 sections 4.3, 4.4)
// with its Ethernet and IPv6 headers.
type Neighbour struct {
	To, From  MAC
	Src, Dst  netip.Addr
	Advertise bool // advertisement, else solicitation
	Solicited bool // flag S of an advertisement
	Override  bool // flag O of an advertisement
	Target    netip.Addr
	// Link is the source (solicitation) or target (advertisement) link-layer address
	// option; HasLink is false when there is none, as in duplicate detection.
	Link    MAC
	HasLink bool
}

// ParseNeighbour reads an Ethernet frame; false is anything but a valid neighbour
// message: hop limit 255 (so it came from this link) and checksum included.
func ParseNeighbour(f []byte) (Neighbour, bool) {
	if len(f) < ndLen || binary.BigEndian.Uint16(f[12:]) != etherIPv6 {
		return Neighbour{}, false
	}
	ip := f[etherLen:]
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 != 6 || ip[6] != icmpv6 || ip[7] != 255 || length < 24 || length > len(ip)-40 {
		return Neighbour{}, false
	}
	m := ip[40 : 40+length]
	n := Neighbour{To: MAC(f[0:6]), From: MAC(f[6:12]), Src: netip.AddrFrom16([16]byte(ip[8:24])), Dst: netip.AddrFrom16([16]byte(ip[24:40]))}
	if m[1] != 0 || m[0] != ndSolicitation && m[0] != ndAdvertisement || checksum(n.Src, n.Dst, m) != 0 {
		return Neighbour{}, false
	}
	n.Advertise = m[0] == ndAdvertisement
	n.Solicited, n.Override = n.Advertise && m[4]&flagSolicited != 0, n.Advertise && m[4]&flagOverride != 0
	n.Target = netip.AddrFrom16([16]byte(m[8:24]))
	if n.Target.IsMulticast() || n.Target.Is4In6() {
		return Neighbour{}, false
	}
	return n, n.readOptions(m[24:])
}

func (n *Neighbour) readOptions(b []byte) bool {
	want := byte(optionSource)
	if n.Advertise {
		want = optionTarget
	}
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || int(b[1])*8 > len(b) {
			return false // RFC 4861 section 4.6: length zero is discarded
		}
		if b[0] == want && b[1] == 1 {
			n.Link, n.HasLink = MAC(b[2:8]), true
		}
		b = b[int(b[1])*8:]
	}
	return true
}

// Frame writes the Ethernet frame with checksum; all addresses must be IPv6.
func (n Neighbour) Frame() []byte {
	m := make([]byte, 24, 32)
	m[0] = ndSolicitation
	option := byte(optionSource)
	if n.Advertise {
		m[0], option = ndAdvertisement, optionTarget
		if n.Solicited {
			m[4] |= flagSolicited
		}
		if n.Override {
			m[4] |= flagOverride
		}
	}
	t := n.Target.As16()
	copy(m[8:], t[:])
	if n.HasLink {
		m = append(append(m, option, 1), n.Link[:]...)
	}
	binary.BigEndian.PutUint16(m[2:], checksum(n.Src, n.Dst, m))
	f := make([]byte, 0, etherLen+40+len(m))
	f = append(append(f, n.To[:]...), n.From[:]...)
	f = binary.BigEndian.AppendUint16(f, etherIPv6)
	f = append(f, 0x60, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(m)))
	f = append(f, icmpv6, 255)
	s, d := n.Src.As16(), n.Dst.As16()
	f = append(append(f, s[:]...), d[:]...)
	return append(f, m...)
}

// checksum is ICMPv6's over the pseudo header (RFC 8200 section 8.1); 0 over a message
// that carries a right one.
func checksum(src, dst netip.Addr, m []byte) uint16 {
	s, d := src.As16(), dst.As16()
	sum := uint32(len(m)) + icmpv6
	for _, b := range [][]byte{s[:], d[:], m} {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Answer is the advertisement for a solicited address that is at mac. A solicitation
// from :: (duplicate detection) is answered to all nodes (RFC 4861 section 7.2.4).
func (n Neighbour) Answer(mac MAC) Neighbour {
	if n.Src.IsUnspecified() {
		return Unsolicited(n.Target, mac)
	}
	a := Neighbour{To: n.From, From: mac, Src: n.Target, Dst: n.Src, Advertise: true, Solicited: true, Override: true, Target: n.Target, Link: mac, HasLink: true}
	if n.HasLink {
		a.To = n.Link
	}
	return a
}

// Unsolicited tells all nodes that addr is at mac now (RFC 4861 section 7.2.6).
func Unsolicited(addr netip.Addr, mac MAC) Neighbour {
	all := netip.MustParseAddr("ff02::1")
	return Neighbour{To: multicastMAC(all), From: mac, Src: addr, Dst: all, Advertise: true, Override: true, Target: addr, Link: mac, HasLink: true}
}

// SolicitedNode is the group a solicitation for addr is sent to (RFC 4291 section 2.7.1).
func SolicitedNode(addr netip.Addr) netip.Addr {
	a := addr.As16()
	g := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(g[13:], a[13:])
	return netip.AddrFrom16(g)
}

func multicastMAC(group netip.Addr) MAC {
	g := group.As16()
	return MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}
}
