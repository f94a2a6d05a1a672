package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/proxy/nftables"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// firstReg is the first 32-bit register; fields of a key follow each other from there.
const firstReg = unix.NFT_REG32_00

// localType is RTN_LOCAL of rtnetlink, what fib gives for the node's own addresses.
const localType = unix.RTN_LOCAL

// dnatStatus is IPS_DST_NAT of conntrack.
const dnatStatus = 1 << 5

// kernelRule writes a rule as netlink expressions.
func kernelRule(r nftables.Rule, v6 bool) ([]expr.Any, error) {
	var out []expr.Any
	for _, e := range r {
		x := exprWriter{v6: v6}
		if err := x.write(e); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Text(v6), err)
		}
		out = append(out, x.out...)
	}
	return out, nil
}

type exprWriter struct {
	v6  bool
	out []expr.Any
}

func (x *exprWriter) add(e ...expr.Any) { x.out = append(x.out, e...) }

func (x *exprWriter) write(e nftables.Expr) error {
	switch e := e.(type) {
	case nftables.SetClass:
		x.key(e.Set)
		x.add(&expr.Lookup{SourceRegister: firstReg, DestRegister: firstReg, IsDestRegSet: true, SetName: e.Set.String()},
			&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: firstReg})
	case nftables.VMap:
		x.key(e.Set)
		x.add(&expr.Lookup{SourceRegister: firstReg, IsDestRegSet: true, SetName: e.Set.String()})
	case nftables.DNATMap:
		x.key(e.Set)
		x.add(&expr.Lookup{SourceRegister: firstReg, DestRegister: firstReg, IsDestRegSet: true, SetName: e.Set.String()}, x.dnat())
	case nftables.InSet:
		x.key(e.Set)
		x.add(&expr.Lookup{SourceRegister: firstReg, SetName: e.Set.String(), Invert: e.Not})
	case nftables.Known:
		x.load(nftables.Saddr, firstReg)
		x.add(&expr.Lookup{SourceRegister: firstReg, SetName: e.Set})
	case nftables.Learn:
		x.load(nftables.Saddr, firstReg)
		x.add(&expr.Dynset{SrcRegKey: firstReg, SetName: e.Set, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: e.Timeout})
	case nftables.DNAT:
		x.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstReg}, cmpEq(e.Proto.Number()))
		x.add(&expr.Immediate{Register: firstReg, Data: e.To.Addr().AsSlice()},
			&expr.Immediate{Register: firstReg + x.words(nftables.Daddr), Data: binaryutil.BigEndian.PutUint16(e.To.Port())}, x.dnat())
	default:
		return x.match(e)
	}
	return nil
}

// match writes the expressions that use no set.
func (x *exprWriter) match(e nftables.Expr) error {
	switch e := e.(type) {
	case nftables.Addr:
		x.prefix(e)
	case nftables.Iif:
		x.add(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: firstReg}, &expr.Cmp{Op: cmpOp(e.Not), Register: firstReg, Data: ifName(e.Name, e.Prefix)})
	case nftables.FibLocal:
		x.add(&expr.Fib{Register: firstReg, ResultADDRTYPE: true, FlagSADDR: e.Field == nftables.Saddr, FlagDADDR: e.Field == nftables.Daddr},
			&expr.Cmp{Op: expr.CmpOpEq, Register: firstReg, Data: word(localType)})
	case nftables.HasMark:
		x.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: firstReg}, bits(e.Bit, 0), nonZero())
	case nftables.SetMark:
		x.mark(^e.Bit, e.Bit)
	case nftables.FlipMark:
		x.mark(^uint32(0), e.Bit)
	case nftables.DNATed:
		x.add(&expr.Ct{Key: expr.CtKeySTATUS, Register: firstReg}, bits(dnatStatus, 0), nonZero())
	case nftables.OneIn:
		x.pick(e.N, 0, e.Pick)
		x.add(&expr.Cmp{Op: expr.CmpOpEq, Register: firstReg, Data: word(0)})
	case nftables.SetIndex:
		x.pick(e.N, nftables.FirstIndex, e.Pick)
		x.add(&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: firstReg})
	case nftables.ClearPriority:
		x.add(&expr.Immediate{Register: firstReg, Data: word(0)}, &expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: firstReg})
	case nftables.HashIs:
		x.pick(e.N, 0, nftables.BySource)
		x.add(&expr.Cmp{Op: expr.CmpOpEq, Register: firstReg, Data: word(e.I)})
	case nftables.Masquerade:
		x.add(&expr.Masq{FullyRandom: true})
	case nftables.Goto:
		x.add(&expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Chain})
	case nftables.Jump:
		x.add(&expr.Verdict{Kind: expr.VerdictJump, Chain: e.Chain})
	case nftables.Drop:
		x.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case nftables.Reject:
		x.add(&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: x.portUnreachable()})
	default:
		return fmt.Errorf("expression %T is unknown", e)
	}
	return nil
}

// portUnreachable is the code of RFC 792 (3) or RFC 4443 (4).
func (x *exprWriter) portUnreachable() uint8 {
	if x.v6 {
		return 4
	}
	return 3
}

func (x *exprWriter) words(f nftables.Field) uint32 { return uint32(f.Size(x.v6) / 4) }

// key loads the fields of a set's key into consecutive registers.
func (x *exprWriter) key(k nftables.Kind) {
	reg := uint32(firstReg)
	for _, f := range k.Fields() {
		x.load(f, reg)
		reg += x.words(f)
	}
}

// hashReg holds what is hashed: four registers beyond the first.
const hashReg = firstReg + 4

// pick loads an index below n, plus offset.
func (x *exprWriter) pick(n, offset uint32, pick nftables.Pick) {
	switch pick {
	case nftables.InTurn:
		x.add(&expr.Numgen{Register: firstReg, Modulus: n, Offset: offset, Type: unix.NFT_NG_INCREMENTAL})
	case nftables.BySource:
		x.load(nftables.Saddr, hashReg)
		x.add(&expr.Hash{SourceRegister: hashReg, DestRegister: firstReg, Length: 4 * x.words(nftables.Saddr), Modulus: n, Offset: offset,
			Seed: nftables.HashSeed, Type: expr.HashTypeJenkins})
	default:
		x.add(&expr.Numgen{Register: firstReg, Modulus: n, Offset: offset, Type: unix.NFT_NG_RANDOM})
	}
}

func (x *exprWriter) load(f nftables.Field, reg uint32) {
	switch f {
	case nftables.L4Proto:
		x.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg})
	case nftables.Dport:
		x.add(&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
	case nftables.Class, nftables.Index:
		x.add(&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg})
	default:
		x.add(&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: addrOffset(f, x.v6), Len: 4 * x.words(f)})
	}
}

// addrOffset is where a header has its address (RFC 791, RFC 8200).
func addrOffset(f nftables.Field, v6 bool) uint32 {
	switch {
	case v6 && f == nftables.Saddr:
		return 8
	case v6:
		return 24
	case f == nftables.Saddr:
		return 12
	}
	return 16
}

// dnat rewrites to the address and port in the first registers.
func (x *exprWriter) dnat() *expr.NAT {
	family := uint32(unix.NFPROTO_IPV4)
	if x.v6 {
		family = unix.NFPROTO_IPV6
	}
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: firstReg, RegProtoMin: firstReg + x.words(nftables.Daddr)}
}

func (x *exprWriter) prefix(e nftables.Addr) {
	x.load(e.Field, firstReg)
	if !e.Prefix.IsSingleIP() {
		mask := maskBytes(e.Prefix)
		x.add(&expr.Bitwise{SourceRegister: firstReg, DestRegister: firstReg, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))})
	}
	x.add(&expr.Cmp{Op: cmpOp(e.Not), Register: firstReg, Data: e.Prefix.Addr().AsSlice()})
}

func maskBytes(p netip.Prefix) []byte {
	out := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		out[i/8] |= 0x80 >> (i % 8)
	}
	return out
}

func (x *exprWriter) mark(mask, xor uint32) {
	x.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: firstReg}, bits(mask, xor),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: firstReg})
}

func word(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

func bits(mask, xor uint32) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: firstReg, DestRegister: firstReg, Len: 4, Mask: word(mask), Xor: word(xor)}
}

func nonZero() *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpNeq, Register: firstReg, Data: word(0)} }

func cmpEq(b ...byte) *expr.Cmp {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: firstReg, Data: slices.Clone(b)}
}

func cmpOp(not bool) expr.CmpOp {
	if not {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

// ifName is the bytes to compare: the whole field, or the beginning only.
func ifName(name string, prefix bool) []byte {
	if prefix {
		return []byte(name)
	}
	out := make([]byte, unix.IFNAMSIZ)
	copy(out, name)
	return out
}
