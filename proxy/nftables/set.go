package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"fairway/packet"
)

// Kind is one of the layout's sets; it fixes the fields of key and data.
type Kind uint8

// The sets of the layout, and two kinds that hold no element of a Program: Clients are
// learned by the kernel (session affinity), Foreign is a set the layout does not know.
const (
	Foreign Kind = iota
	// Services gives the class of a destination; NodePorts for the node's own addresses.
	Services
	NodePorts
	// Classes leads from a class to its chain.
	Classes
	// OwnServices and OwnNodePorts lead to chains of single Services.
	OwnServices
	OwnNodePorts
	// Endpoints hold the Cluster pools, the Local ones those of
	// externalTrafficPolicy Local, by frontend and index.
	Endpoints
	LocalEndpoints
	NodePortEndpoints
	NodePortLocalEndpoints
	// ClusterIPs are the live cluster addresses.
	ClusterIPs
	// Hairpin pairs every endpoint with itself.
	Hairpin
	// SourceRanges are the admitted sources of a restricted frontend.
	SourceRanges
	// Clients are the sources that stay with one endpoint.
	Clients
)

// Field is one field of a key.
type Field uint8

// The fields a key is made of.
const (
	Saddr Field = iota + 1
	Daddr
	L4Proto
	Dport
	// Class and Index are the packet's priority, which holds the class first and then a
	// number below the number of endpoints, see SetIndex.
	Class
	Index
)

// DataKind is what a map leads to.
type DataKind uint8

// A set has no data; a verdict is a chain to go to; a target an address and port; a
// class a number.
const (
	NoData DataKind = iota
	Verdict
	Target
	ClassOf
)

// LayoutKinds lists the sets every table has, in the order they are declared.
func LayoutKinds() []Kind {
	return []Kind{Services, NodePorts, Classes, OwnServices, OwnNodePorts,
		Endpoints, LocalEndpoints, NodePortEndpoints, NodePortLocalEndpoints, ClusterIPs, Hairpin, SourceRanges}
}

func (k Kind) String() string {
	switch k {
	case Services:
		return "services"
	case NodePorts:
		return "nodeports"
	case Classes:
		return "classes"
	case OwnServices:
		return "own-services"
	case OwnNodePorts:
		return "own-nodeports"
	case Endpoints:
		return "endpoints"
	case LocalEndpoints:
		return "local-endpoints"
	case NodePortEndpoints:
		return "nodeport-endpoints"
	case NodePortLocalEndpoints:
		return "nodeport-local-endpoints"
	case ClusterIPs:
		return "cluster-ips"
	case Hairpin:
		return "hairpin"
	case SourceRanges:
		return "source-ranges"
	case Clients:
		return "clients"
	}
	return "foreign"
}

// Fields are the fields of the key.
func (k Kind) Fields() []Field {
	switch k {
	case Services, OwnServices:
		return []Field{Daddr, L4Proto, Dport}
	case NodePorts, OwnNodePorts:
		return []Field{L4Proto, Dport}
	case Classes:
		return []Field{Class}
	case Endpoints, LocalEndpoints:
		return []Field{Daddr, L4Proto, Dport, Index}
	case NodePortEndpoints, NodePortLocalEndpoints:
		return []Field{L4Proto, Dport, Index}
	case ClusterIPs:
		return []Field{Daddr}
	case Hairpin:
		return []Field{Saddr, Daddr}
	case SourceRanges:
		return []Field{Daddr, L4Proto, Dport, Saddr}
	case Clients:
		return []Field{Saddr}
	}
	return nil
}

// Data tells what the elements lead to.
func (k Kind) Data() DataKind {
	switch k {
	case Services, NodePorts:
		return ClassOf
	case Classes, OwnServices, OwnNodePorts:
		return Verdict
	case Endpoints, LocalEndpoints, NodePortEndpoints, NodePortLocalEndpoints:
		return Target
	}
	return NoData
}

// Interval tells whether elements are ranges of keys.
func (k Kind) Interval() bool { return k == SourceRanges }

// Frontend tells whether the elements are what packets of a Service meet first.
func (k Kind) Frontend() bool {
	return k == Services || k == NodePorts || k == OwnServices || k == OwnNodePorts
}

// shared tells whether two ServicePorts may hold the same element.
func (k Kind) shared() bool { return k == ClusterIPs || k == Hairpin }

// Size is the number of bytes of a field, padding included.
func (f Field) Size(v6 bool) int {
	if v6 && (f == Saddr || f == Daddr) {
		return 16
	}
	return 4
}

// KeySize is the number of bytes of a key.
func (k Kind) KeySize(v6 bool) int {
	n := 0
	for _, f := range k.Fields() {
		n += f.Size(v6)
	}
	return n
}

// writer builds keys of many elements in one string.
type writer struct{ buf []byte }

func (w *writer) addr(a netip.Addr) {
	if a.Is4() {
		b := a.As4()
		w.buf = append(w.buf, b[:]...)
		return
	}
	b := a.As16()
	w.buf = append(w.buf, b[:]...)
}

func (w *writer) proto(p packet.Protocol) { w.buf = append(w.buf, p.Number(), 0, 0, 0) }

func (w *writer) port(n uint16) { w.buf = append(w.buf, byte(n>>8), byte(n), 0, 0) }

// firstIndex is what index 0 is as a priority; nft reads "1:a", but not ":a".
const firstIndex = 1 << 16

// index writes a number as a register holds it: in the machine's own byte order.
func (w *writer) index(n uint32) { w.class(firstIndex + n) }

// class writes the number of a class.
func (w *writer) class(n uint32) { w.buf = binary.NativeEndian.AppendUint32(w.buf, n) }

// lastAddr is the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// rangePrefix finds the prefix from first to last.
func rangePrefix(first, last netip.Addr) netip.Prefix {
	for bits := first.BitLen(); bits >= 0; bits-- {
		p := netip.PrefixFrom(first, bits)
		if p.Masked().Addr() == first && lastAddr(p) == last {
			return p
		}
	}
	return netip.Prefix{}
}

func readAddr(b string) netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(b))
	return a
}

func readPort(b string) uint16 { return uint16(b[0])<<8 | uint16(b[1]) }

func protoName(n byte) string {
	for _, p := range []packet.Protocol{packet.TCP, packet.UDP, packet.SCTP} {
		if p.Number() == n {
			return string(p)
		}
	}
	return fmt.Sprint(n)
}

// keyText prints a key as nft writes it.
func (e Elem) keyText() string {
	size := e.Kind.KeySize(e.V6)
	if len(e.Key) < size || e.Kind.Interval() && len(e.Key) < 2*size {
		return fmt.Sprintf("%x", e.Key)
	}
	var parts []string
	at := 0
	for _, f := range e.Kind.Fields() {
		n := f.Size(e.V6)
		b := e.Key[at : at+n]
		switch {
		case f == Saddr && e.Kind.Interval():
			parts = append(parts, prefixText(rangePrefix(readAddr(b), readAddr(e.Key[size+at:size+at+n]))))
		case f == Saddr, f == Daddr:
			parts = append(parts, readAddr(b).String())
		case f == L4Proto:
			parts = append(parts, protoName(b[0]))
		case f == Dport:
			parts = append(parts, fmt.Sprint(readPort(b)))
		case f == Class, f == Index:
			parts = append(parts, classText(b))
		}
		at += n
	}
	return strings.Join(parts, " . ")
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// target reads the data of a Target map.
func (e Elem) target() netip.AddrPort {
	n := Daddr.Size(e.V6)
	if len(e.Data) < n+2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(readAddr(e.Data[:n]), readPort(e.Data[n:]))
}

// classText prints a class as nft prints a priority: two halves in hexadecimal.
func classText(b string) string {
	if len(b) < 4 {
		return fmt.Sprintf("%x", b)
	}
	n := binary.NativeEndian.Uint32([]byte(b))
	return fmt.Sprintf("%x:%x", n>>16, n&0xffff)
}

func (e Elem) text() string {
	s := e.keyText()
	if e.Comment != "" {
		s += fmt.Sprintf(" comment %q", e.Comment)
	}
	switch e.Kind.Data() {
	case Verdict:
		s += " : goto " + e.Data
	case ClassOf:
		s += " : " + classText(e.Data)
	case Target:
		t := e.target()
		s += fmt.Sprintf(" : %s . %d", t.Addr(), t.Port())
	}
	return s
}
