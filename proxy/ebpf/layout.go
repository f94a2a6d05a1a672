package ebpf

import (
	"encoding/binary"
	"net/netip"

	"fairway/packet"
)

// Kind is one of the maps that hold the Program, in the order they are written: what a
// frontend points at comes before the frontend. They are removed the other way round.
type Kind uint8

// The maps. The programs' own (flows, clients, counts) are not part of a Program.
const (
	NodeAddrs Kind = iota
	Pools
	Tables
	Ranges
	VIPs
	Fronts
	Frontends
	Settings
	kinds
)

// Kinds lists the maps in the order they are written.
func Kinds() []Kind {
	return []Kind{NodeAddrs, Pools, Tables, Ranges, VIPs, Fronts, Frontends, Settings}
}

// String is the map's name in the kernel.
func (k Kind) String() string {
	return [...]string{"node_addrs", "pools", "tables", "ranges", "vips", "fronts", "frontends", "settings"}[k]
}

// KeySize and ValueSize are those of the structures in kernel/bpf/layout.h, in bytes.
func (k Kind) KeySize() int { return [...]int{16, 16, 16, 28, 16, 16, 20, 4}[k] }

// ValueSize is the size of a value in bytes.
func (k Kind) ValueSize() int {
	return [...]int{4, 16 + ChunkSize*endpointSize, 2 * tablePart, 4, 4, 4, 32, settingsSize}[k]
}

// ChunkSize is how many endpoints one element of the map pools holds.
const ChunkSize = 16

const (
	endpointSize   = 20
	tablePart      = 1024
	maxServiceCIDR = 16
	settingsSize   = 8 + 2*16 + 2*32 + maxServiceCIDR*32
)

// Entry is one element of one map, in the kernel's bytes.
type Entry struct {
	Kind       Kind
	Key, Value string
}

type entryID struct {
	kind Kind
	key  string
}

func (e Entry) id() entryID { return entryID{e.Kind, e.Key} }

// The flags of a frontend, as in layout.h.
const (
	feReject = 1 << iota
	feInternal
	feLocal
	feRestricted
	feAdmitSelf
	feAdmitNode
	feByClient
)

// The flags of a node address.
const (
	nodeLocal = 1 << iota
	nodePorts
)

// The flags of the settings.
const (
	setMasqueradeAll = 1 << iota
	setDetect4
	setDetect6
	setByLink
	setRejectUnknown

	// SetIdle is no part of a Program: with it the programs take no new connections. Maps
	// have it until the first Program is written, and again when the mode is left.
	SetIdle
)

// writer appends the fields of a structure: numbers in the order of the machine's bytes
// (the object is built for little-endian ones), what is in packets in network order.
type writer struct{ b []byte }

func (w *writer) addr(a netip.Addr) {
	if !a.IsValid() {
		w.b = append(w.b, make([]byte, 16)...)
		return
	}
	b := a.As16()
	w.b = append(w.b, b[:]...)
}

func (w *writer) port(p uint16) { w.b = binary.BigEndian.AppendUint16(w.b, p) }
func (w *writer) u8(v uint8)    { w.b = append(w.b, v) }
func (w *writer) u16(v uint16)  { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v uint32)  { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64)  { w.b = binary.LittleEndian.AppendUint64(w.b, v) }
func (w *writer) big64(v uint64) {
	w.b = binary.BigEndian.AppendUint64(w.b, v)
}

func (w *writer) endpoint(a netip.AddrPort) {
	w.addr(a.Addr())
	w.port(a.Port())
	w.u16(0)
}

// cidr writes a prefix as address and mask, zeros for none.
func (w *writer) cidr(p netip.Prefix) {
	var mask [16]byte
	if !p.IsValid() {
		w.b = append(w.b, make([]byte, 32)...)
		return
	}
	bits := mappedBits(p)
	for i := range mask {
		n := max(0, min(8, bits-8*i))
		mask[i] = byte(0xff << (8 - n))
	}
	w.addr(p.Masked().Addr())
	w.b = append(w.b, mask[:]...)
}

// mappedBits is the length of a prefix of a 16-byte address.
func mappedBits(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 96 + p.Bits()
	}
	return p.Bits()
}

func addrKey(a netip.Addr) string {
	var w writer
	w.addr(a)
	return string(w.b)
}

func frontendKey(a netip.Addr, port uint16, proto packet.Protocol) string {
	var w writer
	w.addr(a)
	w.port(port)
	w.u8(proto.Number())
	w.u8(0)
	return string(w.b)
}

func poolKey(id uint64, chunk int) string {
	var w writer
	w.u64(id)
	w.u32(uint32(chunk))
	w.u32(0)
	return string(w.b)
}

func u32(v uint32) string {
	var w writer
	w.u32(v)
	return string(w.b)
}

// reader takes a structure apart again, for texts and traces.
type reader string

func (r *reader) take(n int) string {
	s := string(*r)[:n]
	*r = (*r)[n:]
	return s
}

func (r *reader) addr() netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(r.take(16)))
	return a.Unmap()
}

func (r *reader) port() uint16 { return binary.BigEndian.Uint16([]byte(r.take(2))) }
func (r *reader) u8() uint8    { return r.take(1)[0] }
func (r *reader) u16() uint16  { return binary.LittleEndian.Uint16([]byte(r.take(2))) }
func (r *reader) u32() uint32  { return binary.LittleEndian.Uint32([]byte(r.take(4))) }
func (r *reader) u64() uint64  { return binary.LittleEndian.Uint64([]byte(r.take(8))) }
func (r *reader) big64() uint64 {
	return binary.BigEndian.Uint64([]byte(r.take(8)))
}

func (r *reader) endpoint() netip.AddrPort {
	a, p := r.addr(), r.port()
	r.take(2)
	return netip.AddrPortFrom(a, p)
}

// cidr is invalid where the kernel has zeros.
func (r *reader) cidr() netip.Prefix {
	a := r.addr()
	bits := 0
	for _, m := range []byte(r.take(16)) {
		for ; m != 0; m <<= 1 {
			bits++
		}
	}
	switch {
	case bits == 0:
		return netip.Prefix{}
	case a.Is4():
		bits -= 96
	}
	return netip.PrefixFrom(a, bits)
}

// frontend is a value of the map frontends.
type frontend struct {
	service, near, far uint64
	affinity, flags    uint32
}

func (f frontend) bytes() string {
	var w writer
	w.u64(f.service)
	w.u64(f.near)
	w.u64(f.far)
	w.u32(f.affinity)
	w.u32(f.flags)
	return string(w.b)
}

func readFrontend(s string) frontend {
	r := reader(s)
	return frontend{r.u64(), r.u64(), r.u64(), r.u32(), r.u32()}
}

// settings is the one value of the map settings.
type settings struct {
	flags              uint32
	primary4, primary6 netip.Addr
	pods4, pods6       netip.Prefix
	services           []netip.Prefix
}

func (s settings) bytes() string {
	var w writer
	w.u32(s.flags)
	w.u32(uint32(len(s.services)))
	w.addr(s.primary4)
	w.addr(s.primary6)
	w.cidr(s.pods4)
	w.cidr(s.pods6)
	for i := range maxServiceCIDR {
		if i < len(s.services) {
			w.cidr(s.services[i])
		} else {
			w.cidr(netip.Prefix{})
		}
	}
	return string(w.b)
}

func readSettings(v string) settings {
	r := reader(v)
	s := settings{flags: r.u32()}
	n := min(int(r.u32()), maxServiceCIDR)
	s.primary4, s.primary6 = r.addr(), r.addr()
	s.pods4, s.pods6 = r.cidr(), r.cidr()
	for range n {
		s.services = append(s.services, r.cidr())
	}
	return s
}
