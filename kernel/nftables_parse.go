package kernel

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"fairway/packet"
	"fairway/proxy/nftables"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// ruleParser is the inverse of exprWriter: it takes one typed expression after the
// other off a list of netlink expressions.
type ruleParser struct {
	left []expr.Any
	v6   bool
}

// peek is the i-th expression when it has type T.
func peek[T any](p *ruleParser, i int) (T, bool) {
	var zero T
	if i >= len(p.left) {
		return zero, false
	}
	v, ok := p.left[i].(T)
	return v, ok
}

// take drops n expressions and returns e.
func (p *ruleParser) take(n int, e nftables.Expr) nftables.Expr {
	p.left = p.left[n:]
	return e
}

// next reads one expression, nil when it is none of ours.
func (p *ruleParser) next() nftables.Expr {
	for _, read := range []func() nftables.Expr{p.verdict, p.metaMatch, p.addrMatch, p.indexed, p.clear, p.dnat, p.keyed} {
		if e := read(); e != nil {
			return e
		}
	}
	return nil
}

func (p *ruleParser) verdict() nftables.Expr {
	if v, ok := peek[*expr.Verdict](p, 0); ok {
		switch v.Kind {
		case expr.VerdictGoto:
			return p.take(1, nftables.Goto{Chain: v.Chain})
		case expr.VerdictJump:
			return p.take(1, nftables.Jump{Chain: v.Chain})
		case expr.VerdictDrop:
			return p.take(1, nftables.Drop{})
		}
	}
	if m, ok := peek[*expr.Masq](p, 0); ok && m.FullyRandom && !m.ToPorts {
		return p.take(1, nftables.Masquerade{})
	}
	x := exprWriter{v6: p.v6}
	if r, ok := peek[*expr.Reject](p, 0); ok && r.Type == unix.NFT_REJECT_ICMP_UNREACH && r.Code == x.portUnreachable() {
		return p.take(1, nftables.Reject{})
	}
	return nil
}

// metaMatch reads what loads packet data that is not in a header.
func (p *ruleParser) metaMatch() nftables.Expr {
	if m, ok := peek[*expr.Meta](p, 0); ok && m.Key == expr.MetaKeyMARK {
		return p.mark()
	}
	if m, ok := peek[*expr.Meta](p, 0); ok && m.Key == expr.MetaKeyIIFNAME {
		if c, ok := peek[*expr.Cmp](p, 1); ok {
			name := string(bytes.TrimRight(c.Data, "\x00"))
			return p.take(2, nftables.Iif{Name: name, Prefix: len(c.Data) < unix.IFNAMSIZ, Not: c.Op == expr.CmpOpNeq})
		}
	}
	if f, ok := peek[*expr.Fib](p, 0); ok && f.ResultADDRTYPE {
		if c, ok := peek[*expr.Cmp](p, 1); ok && c.Op == expr.CmpOpEq && bytes.Equal(c.Data, word(localType)) {
			field := nftables.Daddr
			if f.FlagSADDR {
				field = nftables.Saddr
			}
			return p.take(2, nftables.FibLocal{Field: field})
		}
	}
	if ct, ok := peek[*expr.Ct](p, 0); ok && ct.Key == expr.CtKeySTATUS {
		if mask, xor, ok := p.bits(1); ok && mask == dnatStatus && xor == 0 && p.nonZero(2) {
			return p.take(3, nftables.DNATed{})
		}
	}
	return nil
}

func (p *ruleParser) mark() nftables.Expr {
	mask, xor, ok := p.bits(1)
	if !ok {
		return nil
	}
	if xor == 0 && p.nonZero(2) {
		return p.take(3, nftables.HasMark{Bit: mask})
	}
	set, ok := peek[*expr.Meta](p, 2)
	if !ok || !set.SourceRegister || set.Key != expr.MetaKeyMARK {
		return nil
	}
	switch mask {
	case ^xor:
		return p.take(3, nftables.SetMark{Bit: xor})
	case ^uint32(0):
		return p.take(3, nftables.FlipMark{Bit: xor})
	}
	return nil
}

func (p *ruleParser) bits(i int) (mask, xor uint32, ok bool) {
	b, ok := peek[*expr.Bitwise](p, i)
	if !ok || len(b.Mask) != 4 || len(b.Xor) != 4 {
		return 0, 0, false
	}
	return binaryutil.NativeEndian.Uint32(b.Mask), binaryutil.NativeEndian.Uint32(b.Xor), true
}

func (p *ruleParser) nonZero(i int) bool {
	c, ok := peek[*expr.Cmp](p, i)
	return ok && c.Op == expr.CmpOpNeq && bytes.Equal(c.Data, word(0))
}

// field tells which field of a packet e loads, 0 when none.
func (p *ruleParser) field(e expr.Any) nftables.Field {
	switch e := e.(type) {
	case *expr.Meta:
		if e.Key == expr.MetaKeyL4PROTO && !e.SourceRegister {
			return nftables.L4Proto
		}
		if e.Key == expr.MetaKeyPRIORITY && !e.SourceRegister {
			return nftables.Class
		}
	case *expr.Payload:
		if e.Base == expr.PayloadBaseTransportHeader && e.Offset == 2 && e.Len == 2 {
			return nftables.Dport
		}
		for _, f := range []nftables.Field{nftables.Saddr, nftables.Daddr} {
			if e.Base == expr.PayloadBaseNetworkHeader && e.Offset == addrOffset(f, p.v6) && int(e.Len) == f.Size(p.v6) {
				return f
			}
		}
	}
	return 0
}

func (p *ruleParser) addrMatch() nftables.Expr {
	f := p.field(p.left[0])
	if f != nftables.Saddr && f != nftables.Daddr {
		return nil
	}
	if _, ok := peek[*expr.Hash](p, 1); ok {
		return nil
	}
	n, ones := 1, f.Size(p.v6)*8
	if b, ok := peek[*expr.Bitwise](p, 1); ok {
		n, ones = 2, leadingOnes(b.Mask)
	}
	c, ok := peek[*expr.Cmp](p, n)
	if !ok {
		return nil
	}
	a, ok := netip.AddrFromSlice(c.Data)
	if !ok || ones < 0 {
		return nil
	}
	return p.take(n+1, nftables.Addr{Field: f, Prefix: netip.PrefixFrom(a, ones), Not: c.Op == expr.CmpOpNeq})
}

// leadingOnes is the length of a prefix mask, -1 when it is none.
func leadingOnes(mask []byte) int {
	n := 0
	for n < len(mask)*8 && mask[n/8]&(0x80>>(n%8)) != 0 {
		n++
	}
	for i := n; i < len(mask)*8; i++ {
		if mask[i/8]&(0x80>>(i%8)) != 0 {
			return -1
		}
	}
	return n
}

// index reads what gives an index, n expressions; 0 when none does.
func (p *ruleParser) index() (n int, modulus, offset uint32, pick nftables.Pick) {
	if g, ok := peek[*expr.Numgen](p, 0); ok {
		if g.Type == unix.NFT_NG_INCREMENTAL {
			return 1, g.Modulus, g.Offset, nftables.InTurn
		}
		return 1, g.Modulus, g.Offset, nftables.Randomly
	}
	h, ok := peek[*expr.Hash](p, 1)
	if ok && p.field(p.left[0]) == nftables.Saddr && h.Type == expr.HashTypeJenkins && h.Seed == nftables.HashSeed &&
		int(h.Length) == nftables.Saddr.Size(p.v6) {
		return 2, h.Modulus, h.Offset, nftables.BySource
	}
	return 0, 0, 0, 0
}

// indexed reads what is done with an index: kept, or compared.
func (p *ruleParser) indexed() nftables.Expr {
	n, modulus, offset, pick := p.index()
	if n == 0 {
		return nil
	}
	if m, ok := peek[*expr.Meta](p, n); ok && m.Key == expr.MetaKeyPRIORITY && m.SourceRegister && offset == nftables.FirstIndex {
		return p.take(n+1, nftables.SetIndex{N: modulus, Pick: pick})
	}
	c, ok := peek[*expr.Cmp](p, n)
	if !ok || c.Op != expr.CmpOpEq || len(c.Data) != 4 || offset != 0 {
		return nil
	}
	i := binaryutil.NativeEndian.Uint32(c.Data)
	if pick == nftables.BySource {
		return p.take(n+1, nftables.HashIs{N: modulus, I: i})
	}
	if i != 0 {
		return nil
	}
	return p.take(n+1, nftables.OneIn{N: modulus, Pick: pick})
}

func (p *ruleParser) dnat() nftables.Expr {
	m, ok := peek[*expr.Meta](p, 0)
	c, ok1 := peek[*expr.Cmp](p, 1)
	addr, ok2 := peek[*expr.Immediate](p, 2)
	port, ok3 := peek[*expr.Immediate](p, 3)
	nat, ok4 := peek[*expr.NAT](p, 4)
	if !(ok && ok1 && ok2 && ok3 && ok4) || m.Key != expr.MetaKeyL4PROTO || len(c.Data) != 1 || nat.Type != expr.NATTypeDestNAT || len(port.Data) < 2 {
		return nil
	}
	a, _ := netip.AddrFromSlice(addr.Data)
	for _, proto := range []packet.Protocol{packet.TCP, packet.UDP, packet.SCTP} {
		if proto.Number() == c.Data[0] {
			return p.take(5, nftables.DNAT{Proto: proto, To: netip.AddrPortFrom(a, binaryutil.BigEndian.Uint16(port.Data))})
		}
	}
	return nil
}

func (p *ruleParser) clear() nftables.Expr {
	zero, ok := peek[*expr.Immediate](p, 0)
	m, ok1 := peek[*expr.Meta](p, 1)
	if ok && ok1 && bytes.Equal(zero.Data, word(0)) && m.Key == expr.MetaKeyPRIORITY && m.SourceRegister {
		return p.take(2, nftables.ClearPriority{})
	}
	return nil
}

// keyed reads what looks a key up in a set.
func (p *ruleParser) keyed() nftables.Expr {
	var fields []nftables.Field
	for _, e := range p.left {
		f := p.field(e)
		if f == 0 {
			break
		}
		fields = append(fields, f)
	}
	n := len(fields)
	if d, ok := peek[*expr.Dynset](p, n); ok && d.Operation == unix.NFT_DYNSET_OP_UPDATE && loads(nftables.Clients, fields) {
		return p.take(n+1, nftables.Learn{Set: d.SetName, Timeout: d.Timeout})
	}
	l, ok := peek[*expr.Lookup](p, n)
	if !ok {
		return nil
	}
	if strings.HasPrefix(l.SetName, nftables.Clients.String()+"/") && loads(nftables.Clients, fields) && !l.Invert {
		return p.take(n+1, nftables.Known{Set: l.SetName})
	}
	for _, k := range nftables.LayoutKinds() {
		if k.String() == l.SetName && loads(k, fields) {
			return p.lookup(k, l, n)
		}
	}
	return nil
}

// loads tells whether fields are the key of a kind; the priority is read as a class.
func loads(k nftables.Kind, fields []nftables.Field) bool {
	return slices.EqualFunc(k.Fields(), fields, func(want, got nftables.Field) bool {
		return want == got || want == nftables.Index && got == nftables.Class
	})
}

func (p *ruleParser) lookup(k nftables.Kind, l *expr.Lookup, n int) nftables.Expr {
	switch {
	case !l.IsDestRegSet:
		return p.take(n+1, nftables.InSet{Set: k, Not: l.Invert})
	case l.DestRegister == unix.NFT_REG_VERDICT:
		return p.take(n+1, nftables.VMap{Set: k})
	}
	if m, ok := peek[*expr.Meta](p, n+1); ok && m.Key == expr.MetaKeyPRIORITY && m.SourceRegister {
		return p.take(n+2, nftables.SetClass{Set: k})
	}
	if nat, ok := peek[*expr.NAT](p, n+1); ok && nat.Type == expr.NATTypeDestNAT {
		return p.take(n+2, nftables.DNATMap{Set: k})
	}
	return nil
}
