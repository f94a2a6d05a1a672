package hostport

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const tableName = "fairway-lab-hostport"

// Hook priorities: just before the customary dstnat (-100) and srcnat (100).
const (
	dnatPriority = -105
	snatPriority = 95
)

// remove deletes the table whether or not it is there: adding one that exists is no error.
func remove() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	conn.DelTable(table)
	return conn.Flush()
}

// write replaces the table in one transaction; without rules it stays away.
func write(rules []rule) error {
	if len(rules) == 0 {
		return remove()
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	conn.DelTable(table)
	conn.AddTable(table)
	chain := func(name string, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{
			Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: &priority,
		})
	}
	arriving := chain("arriving", nftables.ChainHookPrerouting, dnatPriority)
	own := chain("own", nftables.ChainHookOutput, dnatPriority)
	leaving := chain("leaving", nftables.ChainHookPostrouting, snatPriority)
	for _, r := range rules {
		conn.AddRule(&nftables.Rule{Table: table, Chain: arriving, Exprs: r.translate()})
		conn.AddRule(&nftables.Rule{Table: table, Chain: own, Exprs: r.translate()})
		conn.AddRule(&nftables.Rule{Table: table, Chain: leaving, Exprs: r.masquerade(r.to, r.to.BitLen())})
		if r.to.Is4() {
			loopback := netip.MustParseAddr("127.0.0.0")
			conn.AddRule(&nftables.Rule{Table: table, Chain: leaving, Exprs: r.masquerade(loopback, 8)})
		}
	}
	return conn.Flush()
}

// translate: packets to the host port of this node go to the Pod.
func (r rule) translate() []expr.Any {
	exprs := r.family()
	if r.HostIP.IsValid() {
		exprs = append(exprs, address(destination, r.HostIP, r.HostIP.BitLen())...)
	} else {
		exprs = append(exprs,
			&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		)
	}
	exprs = append(exprs, r.port(r.HostPort)...)
	nat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true}
	if r.to.Is6() {
		nat.Family = unix.NFPROTO_IPV6
	}
	return append(exprs,
		&expr.Immediate{Register: 1, Data: r.to.AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, r.PodPort)},
		nat,
	)
}

// masquerade: packets translated by us whose source could not be answered, the Pod's own address or 127.0.0.0/8, leave
// with an address of the node.
func (r rule) masquerade(source netip.Addr, bits int) []expr.Any {
	exprs := r.family()
	exprs = append(exprs, address(origin, source, bits)...)
	exprs = append(exprs, address(destination, r.to, r.to.BitLen())...)
	exprs = append(exprs, r.port(r.PodPort)...)
	const dnat = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
	return append(exprs,
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(dnat), Xor: binaryutil.NativeEndian.PutUint32(0),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Masq{},
	)
}

func (r rule) family() []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if r.to.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
	}
}

// port matches the protocol and the destination port, which lies at the same place in TCP, UDP and SCTP.
func (r rule) port(number uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{r.Protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, number)},
	}
}

type side int

const (
	origin side = iota
	destination
)

// address matches the first bits of the source or destination.
func address(s side, addr netip.Addr, bits int) []expr.Any {
	offset, length := uint32(12), uint32(4) // IPv4 source
	if addr.Is6() {
		offset, length = 8, 16
	}
	if s == destination {
		offset += length
	}
	exprs := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
	}
	if bits < addr.BitLen() {
		exprs = append(exprs, &expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: length, Mask: mask(int(length), bits), Xor: make([]byte, length),
		})
	}
	return append(exprs, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addr.AsSlice()})
}

// mask has the first bits of length bytes set.
func mask(length, bits int) []byte {
	out := make([]byte, length)
	for i := range bits {
		out[i/8] |= 0x80 >> (i % 8)
	}
	return out
}
