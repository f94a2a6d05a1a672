package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"fairway/proxy/nftables"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// rulesBatch is one nftables transaction as the bytes of its messages, and for each
// message the Op it begins with.
type rulesBatch struct {
	table string
	attrs
	ops []int
}

// newRulesBatch writes Ops on tables of a name as netlink messages, into buf when it is
// large enough.
func newRulesBatch(table string, ops []nftables.Op, buf []byte) (*rulesBatch, error) {
	b := &rulesBatch{table: table, attrs: attrs{buf[:0]}}
	b.message(unix.NFNL_MSG_BATCH_BEGIN, 0, [4]byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}, func() {})
	for i := 0; i < len(ops); {
		if a := ops[i].Action; a == nftables.AddElem || a == nftables.DelElem {
			i += b.elems(ops, i)
			continue
		}
		if err := b.op(ops[i], i); err != nil {
			return nil, err
		}
		i++
	}
	b.message(unix.NFNL_MSG_BATCH_END, 0, [4]byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}, func() {})
	return b, nil
}

func family(v6 bool) byte {
	if v6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// message appends a netlink message (RFC 3549) that begins with head, numbered in order.
func (b *rulesBatch) message(typ uint16, flags netlink.HeaderFlags, head [4]byte, fill func()) {
	at := len(b.b)
	b.b = append(b.b, make([]byte, unix.NLMSG_HDRLEN)...)
	b.b = append(b.b, head[:]...)
	fill()
	h := b.b[at:]
	binary.NativeEndian.PutUint32(h, uint32(len(h)))
	binary.NativeEndian.PutUint16(h[4:], typ)
	binary.NativeEndian.PutUint16(h[6:], uint16(netlink.Request|flags))
	binary.NativeEndian.PutUint32(h[8:], uint32(len(b.ops)))
}

// add appends a message of the nftables subsystem for op number op.
func (b *rulesBatch) add(op int, msg uint16, v6 bool, flags netlink.HeaderFlags, fill func()) {
	b.ops = append(b.ops, op)
	b.message(unix.NFNL_SUBSYS_NFTABLES<<8|msg, netlink.Acknowledge|flags, [4]byte{family(v6), unix.NFNETLINK_V0, 0, 0}, fill)
}

func (b *rulesBatch) op(o nftables.Op, i int) error {
	var fail error
	switch o.Action {
	case nftables.ResetTable, nftables.DelTable:
		b.add(i, unix.NFT_MSG_DELTABLE, o.V6, 0, func() { b.str(unix.NFTA_TABLE_NAME, b.table) })
	case nftables.AddTable:
		b.add(i, unix.NFT_MSG_NEWTABLE, o.V6, netlink.Create, func() {
			b.str(unix.NFTA_TABLE_NAME, b.table)
			b.u32(unix.NFTA_TABLE_FLAGS, 0)
		})
	case nftables.AddSet:
		b.add(i, unix.NFT_MSG_NEWSET, o.V6, netlink.Create, func() { writeSet(&b.attrs, b.table, *o.Set, uint32(i+1)) })
	case nftables.DelSet:
		b.add(i, unix.NFT_MSG_DELSET, o.V6, 0, func() {
			b.str(unix.NFTA_SET_TABLE, b.table)
			b.str(unix.NFTA_SET_NAME, o.Set.Name)
		})
	case nftables.AddChain:
		b.add(i, unix.NFT_MSG_NEWCHAIN, o.V6, netlink.Create, func() { writeChain(&b.attrs, b.table, o.Chain) })
	case nftables.DelChain:
		b.add(i, unix.NFT_MSG_DELCHAIN, o.V6, 0, func() {
			b.str(unix.NFTA_CHAIN_TABLE, b.table)
			b.str(unix.NFTA_CHAIN_NAME, o.Chain.Name)
		})
	case nftables.FlushChain, nftables.EmptyChain:
		b.add(i, unix.NFT_MSG_DELRULE, o.V6, 0, func() {
			b.str(unix.NFTA_RULE_TABLE, b.table)
			b.str(unix.NFTA_RULE_CHAIN, o.Chain.Name)
		})
	case nftables.AddRule:
		b.add(i, unix.NFT_MSG_NEWRULE, o.V6, netlink.Create|netlink.Append, func() { fail = writeRule(&b.attrs, b.table, o) })
	default:
		return fmt.Errorf("nftables action %d is unknown", o.Action)
	}
	if fail != nil {
		return fmt.Errorf("chain %s: %w", o.Chain.Name, fail)
	}
	return nil
}

func writeRule(a *attrs, table string, o nftables.Op) error {
	exprs, err := kernelRule(o.Rule, o.V6)
	if err != nil {
		return err
	}
	a.str(unix.NFTA_RULE_TABLE, table)
	a.str(unix.NFTA_RULE_CHAIN, o.Chain.Name)
	a.nest(unix.NFTA_RULE_EXPRESSIONS, func() {
		for _, e := range exprs {
			raw, fail := expr.Marshal(family(o.V6), e)
			err = errors.Join(err, fail)
			a.bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, raw)
		}
	})
	return err
}

func writeChain(a *attrs, table string, c *nftables.Chain) {
	a.str(unix.NFTA_CHAIN_TABLE, table)
	a.str(unix.NFTA_CHAIN_NAME, c.Name)
	if c.Hook == nftables.NoHook {
		return
	}
	a.nest(unix.NFTA_CHAIN_HOOK, func() {
		a.u32(unix.NFTA_HOOK_HOOKNUM, hookNumber(c.Hook))
		a.u32(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.Priority()))
	})
	a.u32(unix.NFTA_CHAIN_POLICY, 1) // NF_ACCEPT
	a.str(unix.NFTA_CHAIN_TYPE, "nat")
}

func hookNumber(h nftables.Hook) uint32 {
	switch h {
	case nftables.Output:
		return unix.NF_INET_LOCAL_OUT
	case nftables.Postrouting:
		return unix.NF_INET_POST_ROUTING
	}
	return unix.NF_INET_PRE_ROUTING
}

// elems writes the run of element Ops that begins at i, a message per set and some
// hundred elements, and tells how many Ops it took.
func (b *rulesBatch) elems(ops []nftables.Op, i int) int {
	msg, flags := uint16(unix.NFT_MSG_NEWSETELEM), netlink.Create
	if ops[i].Action == nftables.DelElem {
		msg, flags = unix.NFT_MSG_DELSETELEM, 0
	}
	n := i
	var present [2][nftables.Clients]bool
	for ; n < len(ops) && ops[n].Action == ops[i].Action; n++ {
		present[v6Index(ops[n].V6)][ops[n].Elem.Kind] = true
	}
	for _, v6 := range []bool{false, true} {
		for _, k := range nftables.LayoutKinds() {
			for at := i; at < n && present[v6Index(v6)][k]; {
				b.add(at, msg, v6, flags, func() { at = b.some(ops, at, n, v6, k) })
			}
		}
	}
	return n - i
}

func v6Index(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// some writes the elements of one set from ops[at:end], as many as a message takes, and
// tells where to go on.
func (b *rulesBatch) some(ops []nftables.Op, at, end int, v6 bool, kind nftables.Kind) int {
	b.str(unix.NFTA_SET_ELEM_LIST_TABLE, b.table)
	b.str(unix.NFTA_SET_ELEM_LIST_SET, kind.String())
	list := b.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED)
	for left := elemsPerMessage; at < end && left > 0; at++ {
		if e := ops[at].Elem; e.Kind == kind && e.V6 == v6 {
			if left == elemsPerMessage {
				b.ops[len(b.ops)-1] = at
			}
			b.elem(e)
			left--
		}
	}
	b.close(list)
	for at < end && (ops[at].Elem.Kind != kind || ops[at].Elem.V6 != v6) {
		at++ // no message for none
	}
	return at
}

const elemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END

func (b *rulesBatch) elem(e *nftables.Elem) {
	at := b.open(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
	key := e.Key
	if e.Kind.Interval() {
		key = e.Key[:len(e.Key)/2]
		b.value(elemKeyEnd, e.Key[len(e.Key)/2:])
	}
	b.value(unix.NFTA_SET_ELEM_KEY, key)
	switch e.Kind.Data() {
	case nftables.Target, nftables.ClassOf:
		b.value(unix.NFTA_SET_ELEM_DATA, e.Data)
	case nftables.Verdict:
		b.nest(unix.NFTA_SET_ELEM_DATA, func() {
			b.nest(unix.NFTA_DATA_VERDICT, func() {
				b.u32(unix.NFTA_VERDICT_CODE, verdictGoto)
				b.str(unix.NFTA_VERDICT_CHAIN, e.Data)
			})
		})
	}
	if e.Comment != "" {
		var u udata
		u.str(0, e.Comment) // NFTNL_UDATA_SET_ELEM_COMMENT
		b.bytes(unix.NFTA_SET_ELEM_USERDATA, u.b)
	}
	b.close(at)
}

func (b *rulesBatch) value(typ uint16, v string) {
	at := b.open(typ | unix.NLA_F_NESTED)
	b.data(unix.NFTA_DATA_VALUE, v)
	b.close(at)
}

const verdictGoto uint32 = 1<<32 + unix.NFT_GOTO

// commit sends the transaction and reads one answer per message. The error names the
// first Op refused.
func (b *rulesBatch) commit(c *netlink.Conn, ops []nftables.Op) error {
	if err := send(c, b.b); err != nil {
		return fmt.Errorf("send %d messages: %w", len(b.ops), err)
	}
	var first error
	for _, op := range b.ops {
		_, err := c.Receive()
		if err == nil {
			continue
		}
		if first == nil {
			first = &RefusedError{Op: op, Step: ops[op].Text(), Err: err}
		}
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, os.ErrDeadlineExceeded) {
			return first // no further answers will come
		}
	}
	return first
}

// send writes messages to the kernel as they are.
func send(c *netlink.Conn, messages []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var fail error
	err = raw.Write(func(fd uintptr) bool {
		fail = unix.Sendto(int(fd), messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(fail, unix.EAGAIN) && !errors.Is(fail, unix.EINTR)
	})
	return errors.Join(err, fail)
}

// RefusedError says which step of a transaction the kernel refused first; nothing of
// the transaction is in force.
type RefusedError struct {
	Op   int
	Step string
	Err  error
}

func (e *RefusedError) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap gives the kernel's error.
func (e *RefusedError) Unwrap() error { return e.Err }
