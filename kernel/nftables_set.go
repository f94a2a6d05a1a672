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
	typeInteger = 4
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
	return typeInteger
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
)

func writeSet(a *attrs, table string, s nftables.Set, id uint32) {
	fields := s.Kind.Fields()
	a.str(unix.NFTA_SET_TABLE, table)
	a.str(unix.NFTA_SET_NAME, s.Name)
	a.u32(unix.NFTA_SET_FLAGS, setFlags(s.Kind))
	a.u32(unix.NFTA_SET_KEY_TYPE, concatType(fields, s.V6))
	a.u32(unix.NFTA_SET_KEY_LEN, uint32(s.Kind.KeySize(s.V6)))
	a.u32(unix.NFTA_SET_ID, id)
	switch s.Kind.Data() {
	case nftables.Verdict:
		a.u32(unix.NFTA_SET_DATA_TYPE, typeVerdict)
		a.u32(unix.NFTA_SET_DATA_LEN, 0)
	case nftables.Target:
		a.u32(unix.NFTA_SET_DATA_TYPE, concatType(targetFields(), s.V6))
		a.u32(unix.NFTA_SET_DATA_LEN, uint32(nftables.Daddr.Size(s.V6)+nftables.Dport.Size(s.V6)))
	}
	if s.Kind == nftables.Clients {
		a.nest(unix.NFTA_SET_DESC, func() { a.u32(unix.NFTA_SET_DESC_SIZE, nftables.MaxClients) })
	}
	if s.Kind.Interval() {
		a.nest(unix.NFTA_SET_DESC, func() { writeConcat(a, fields, s.V6) })
	}
	a.bytes(unix.NFTA_SET_USERDATA, setUserdata(s))
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

	exprPayload, exprMeta, exprConcat, exprNumgen = 7, 9, 13, 23

	descTCP, descTH, descIP, descIP6 = 8, 11, 12, 13
	ipDaddr, ip6Daddr, portDport     = 12, 9, 2
	metaL4proto                      = 16
	numgenRandom                     = 1
	bigEndian                        = 2
)

func setUserdata(s nftables.Set) []byte {
	var u udata
	if s.Kind.Data() != nftables.Target {
		if len(s.Kind.Fields()) == 1 {
			u.u32(udataKeyOrder, bigEndian)
		}
		return u.b
	}
	u.u32(udataKeyOrder, 0)
	u.u32(udataDataOrder, 0)
	writeTypeof(&u, udataKeyTypeof, s.Kind.Fields(), s.V6, descTCP)
	writeTypeof(&u, udataDataTypeof, targetFields(), s.V6, descTH)
	return u.b
}

// writeTypeof describes a concatenation; ports are those of the header port.
func writeTypeof(u *udata, typ byte, fields []nftables.Field, v6 bool, port uint32) {
	u.nest(typ, func(u *udata) {
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
	case nftables.Index:
		u.u32(typeofExpr, exprNumgen)
		u.nest(typeofData, func(u *udata) { u.u32(0, numgenRandom); u.u32(1, 2); u.u32(2, 0) })
	}
}
