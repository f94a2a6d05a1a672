package kernel

import (
	"fairway/proxy/nftables"

	"golang.org/x/sys/unix"
)

// nft's numbers for the types of fields (its datatype.h); the kernel only stores them.
const (
	typeIPv4    = 7
	typeIPv6    = 8
	typeProto   = 12
	typePort    = 13
	typeClass   = 23
	typeBits    = 6 // how far a concatenation shifts
	typeVerdict = 0xffffff00
)

func fieldType(f nftables.Field, v6 bool) uint32 {
	switch f {
	case nftables.Saddr, nftables.Daddr:
		if v6 {
			return typeIPv6
		}
		return typeIPv4
	case nftables.L4Proto:
		return typeProto
	case nftables.Dport:
		return typePort
	}
	return typeClass
}

// fieldLen is the length of a field without padding.
func fieldLen(f nftables.Field, v6 bool) uint32 {
	switch f {
	case nftables.L4Proto:
		return 1
	case nftables.Dport:
		return 2
	}
	return uint32(f.Size(v6))
}

func targetFields() []nftables.Field { return []nftables.Field{nftables.Daddr, nftables.Dport} }

func concatType(fields []nftables.Field, v6 bool) uint32 {
	t := uint32(0)
	for _, f := range fields {
		t = t<<typeBits | fieldType(f, v6)
	}
	return t
}

// setFlags are the flags of the kernel's set.
func setFlags(k nftables.Kind) uint32 {
	flags := uint32(0)
	if k.Data() != nftables.NoData {
		flags |= unix.NFT_SET_MAP
	}
	if k.Interval() {
		flags |= unix.NFT_SET_INTERVAL | flagConcat
	}
	if k == nftables.Clients {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

const (
	flagConcat    = 0x80 // NFT_SET_CONCAT
	setDescConcat = 2    // NFTA_SET_DESC_CONCAT
	setExpr       = 17   // NFTA_SET_EXPR
)

// dataOf is the type and the size of what a set leads to, zero when to nothing. The
// kernel knows the size of a verdict.
func dataOf(k nftables.Kind, v6 bool) (typ, size uint32) {
	switch k.Data() {
	case nftables.Verdict:
		return typeVerdict, 0
	case nftables.ClassOf:
		return typeClass, uint32(nftables.Class.Size(v6))
	case nftables.Target:
		return concatType(targetFields(), v6), uint32(nftables.Daddr.Size(v6) + nftables.Dport.Size(v6))
	}
	return 0, 0
}

func writeSet(a *attrs, table string, s nftables.Set, id uint32) {
	fields := s.Kind.Fields()
	a.str(unix.NFTA_SET_TABLE, table)
	a.str(unix.NFTA_SET_NAME, s.Name)
	a.u32(unix.NFTA_SET_FLAGS, setFlags(s.Kind))
	a.u32(unix.NFTA_SET_KEY_TYPE, concatType(fields, s.V6))
	a.u32(unix.NFTA_SET_KEY_LEN, uint32(s.Kind.KeySize(s.V6)))
	a.u32(unix.NFTA_SET_ID, id)
	if typ, size := dataOf(s.Kind, s.V6); typ != 0 {
		a.u32(unix.NFTA_SET_DATA_TYPE, typ)
		a.u32(unix.NFTA_SET_DATA_LEN, size)
	}
	if s.Kind == nftables.Clients {
		a.nest(unix.NFTA_SET_DESC, func() { a.u32(unix.NFTA_SET_DESC_SIZE, nftables.MaxClients) })
	}
	if s.Kind.Interval() {
		a.nest(unix.NFTA_SET_DESC, func() { writeConcat(a, fields, s.V6) })
	}
	a.bytes(unix.NFTA_SET_USERDATA, setUserdata(s))
	if s.Counter {
		a.nest(setExpr, func() {
			a.str(unix.NFTA_EXPR_NAME, "counter")
			a.nest(unix.NFTA_EXPR_DATA, func() {})
		})
	}
}

// writeConcat gives the lengths of the fields, which a set of ranges over several
// fields needs.
func writeConcat(a *attrs, fields []nftables.Field, v6 bool) {
	a.nest(setDescConcat, func() {
		for _, f := range fields {
			a.nest(unix.NFTA_LIST_ELEM, func() { a.u32(1, fieldLen(f, v6)) }) // NFTA_SET_FIELD_LEN
		}
	})
}

// What nft stores with a set to print it again (libnftnl's udata.h and nft's
// expression numbers). A set whose key has no named type must carry its typeof, or nft
// 1.0.6 aborts when it lists the table.
const (
	udataKeyOrder   = 0
	udataDataOrder  = 1
	udataKeyTypeof  = 3
	udataDataTypeof = 4

	typeofExpr, typeofData = 0, 1

	exprVerdict, exprPayload, exprMeta, exprConcat = 1, 7, 9, 13

	descTCP, descTH, descIP, descIP6 = 8, 11, 12, 13
	ipDaddr, ip6Daddr, portDport     = 12, 9, 2
	metaL4proto, metaPriority        = 16, 2
	hostEndian, bigEndian            = 1, 2
)

func setUserdata(s nftables.Set) []byte {
	var u udata
	class := []nftables.Field{nftables.Class}
	switch {
	case s.Kind.Data() == nftables.ClassOf:
		u.u32(udataKeyOrder, 0)
		u.u32(udataDataOrder, hostEndian)
		writeTypeof(&u, udataKeyTypeof, s.Kind.Fields(), s.V6, descTH)
		writeTypeof(&u, udataDataTypeof, class, s.V6, descTH)
	case s.Kind.Data() == nftables.Target:
		u.u32(udataKeyOrder, 0)
		u.u32(udataDataOrder, 0)
		writeTypeof(&u, udataKeyTypeof, s.Kind.Fields(), s.V6, descTCP)
		writeTypeof(&u, udataDataTypeof, targetFields(), s.V6, descTH)
	case s.Kind == nftables.Classes:
		u.u32(udataKeyOrder, hostEndian)
		u.u32(udataDataOrder, 0)
		writeTypeof(&u, udataKeyTypeof, class, s.V6, descTH)
		u.nest(udataDataTypeof, func(u *udata) {
			u.u32(typeofExpr, exprVerdict)
			u.nest(typeofData, func(*udata) {})
		})
	case len(s.Kind.Fields()) == 1:
		u.u32(udataKeyOrder, bigEndian)
	}
	return u.b
}

// writeTypeof describes an expression, or a concatenation; ports are those of the header
// port.
func writeTypeof(u *udata, typ byte, fields []nftables.Field, v6 bool, port uint32) {
	u.nest(typ, func(u *udata) {
		if len(fields) == 1 {
			writeTypeofField(u, fields[0], v6, port)
			return
		}
		u.u32(typeofExpr, exprConcat)
		u.nest(typeofData, func(u *udata) {
			for i, f := range fields {
				u.nest(byte(i), func(u *udata) { writeTypeofField(u, f, v6, port) })
			}
		})
	})
}

func writeTypeofField(u *udata, f nftables.Field, v6 bool, port uint32) {
	payload := func(desc, field uint32) {
		u.u32(typeofExpr, exprPayload)
		u.nest(typeofData, func(u *udata) { u.u32(0, desc); u.u32(1, field) })
	}
	switch f {
	case nftables.Daddr:
		if v6 {
			payload(descIP6, ip6Daddr)
			return
		}
		payload(descIP, ipDaddr)
	case nftables.Dport:
		payload(port, portDport)
	case nftables.L4Proto:
		u.u32(typeofExpr, exprMeta)
		u.nest(typeofData, func(u *udata) { u.u32(0, metaL4proto) })
	case nftables.Class, nftables.Index:
		u.u32(typeofExpr, exprMeta)
		u.nest(typeofData, func(u *udata) { u.u32(0, metaPriority) })
	}
}
