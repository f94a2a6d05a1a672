package announce

import (
	"encoding/binary"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast reaches every station of the LAN.
func Broadcast() MAC { return MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	etherLen  = 14
	arpLen    = etherLen + 28
)

// The two ARP operations (RFC 826).
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

// ARP is an ARP packet for IPv4 over Ethernet (RFC 826) with its Ethernet header.
type ARP struct {
	To, From  MAC // Ethernet header
	Op        uint16
	SenderMAC MAC
	Sender    netip.Addr
	TargetMAC MAC
	Target    netip.Addr
}

// ParseARP reads an Ethernet frame; false is no ARP for IPv4 over Ethernet.
func ParseARP(f []byte) (ARP, bool) {
	if len(f) < arpLen || binary.BigEndian.Uint16(f[12:]) != etherARP {
		return ARP{}, false
	}
	p := f[etherLen:]
	// Hardware type 1, protocol IPv4, address lengths 6 and 4.
	if binary.BigEndian.Uint64(p)>>16 != 0x000108000604 {
		return ARP{}, false
	}
	a := ARP{To: MAC(f[0:6]), From: MAC(f[6:12]), Op: binary.BigEndian.Uint16(p[6:])}
	a.SenderMAC, a.TargetMAC = MAC(p[8:14]), MAC(p[18:24])
	a.Sender, a.Target = netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
	return a, true
}

// Frame writes the Ethernet frame; both addresses must be IPv4.
func (a ARP) Frame() []byte {
	f := make([]byte, 0, arpLen)
	f = append(f, a.To[:]...)
	f = append(f, a.From[:]...)
	f = binary.BigEndian.AppendUint16(f, etherARP)
	f = append(f, 0, 1, 8, 0, 6, 4)
	f = binary.BigEndian.AppendUint16(f, a.Op)
	s, t := a.Sender.As4(), a.Target.As4()
	f = append(append(f, a.SenderMAC[:]...), s[:]...)
	return append(append(f, a.TargetMAC[:]...), t[:]...)
}

// Answer is the reply to a request for an address that is at mac.
func (a ARP) Answer(mac MAC) ARP {
	return ARP{To: a.SenderMAC, From: mac, Op: ARPReply, SenderMAC: mac, Sender: a.Target, TargetMAC: a.SenderMAC, Target: a.Sender}
}

// Gratuitous is what tells the LAN that addr is at mac now (RFC 5227 section 3): some
// stations update their cache by the request form, some by the reply form.
func Gratuitous(op uint16, addr netip.Addr, mac MAC) ARP {
	a := ARP{To: Broadcast(), From: mac, Op: op, SenderMAC: mac, Sender: addr, Target: addr}
	if op == ARPReply {
		a.TargetMAC = Broadcast()
	}
	return a
}

// Claim is the address some other station says it has, false when the packet claims
// none (a probe has sender 0.0.0.0).
func (a ARP) Claim() (netip.Addr, bool) {
	return a.Sender, a.Sender == a.Target && !a.Sender.IsUnspecified()
}
