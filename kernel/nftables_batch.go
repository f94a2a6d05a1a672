package kernel

import (
	"errors"
	"fmt"
	"os"

	"fairway/proxy/nftables"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// rulesBatch is one nftables transaction: its messages, and for each the Op it begins
// with.
type rulesBatch struct {
	table string
	msgs  []netlink.Message
	ops   []int
}

// newRulesBatch writes Ops on tables of a name as netlink messages.
func newRulesBatch(table string, ops []nftables.Op) (*rulesBatch, error) {
	b := &rulesBatch{table: table}
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
	return b, nil
}

func family(v6 bool) byte {
	if v6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// add appends a message of the nftables subsystem for op number op.
func (b *rulesBatch) add(op int, msg uint16, v6 bool, flags netlink.HeaderFlags, a *attrs) {
	b.ops = append(b.ops, op)
	b.msgs = append(b.msgs, netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | msg), Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append([]byte{family(v6), unix.NFNETLINK_V0, 0, 0}, a.b...),
	})
}

func (b *rulesBatch) op(o nftables.Op, i int) error {
	var a attrs
	switch o.Action {
	case nftables.ResetTable, nftables.DelTable:
		a.str(unix.NFTA_TABLE_NAME, b.table)
		b.add(i, unix.NFT_MSG_DELTABLE, o.V6, 0, &a)
	case nftables.AddTable:
		a.str(unix.NFTA_TABLE_NAME, b.table)
		a.u32(unix.NFTA_TABLE_FLAGS, 0)
		b.add(i, unix.NFT_MSG_NEWTABLE, o.V6, netlink.Create, &a)
	case nftables.AddSet:
		writeSet(&a, b.table, *o.Set, uint32(i+1))
		b.add(i, unix.NFT_MSG_NEWSET, o.V6, netlink.Create, &a)
	case nftables.DelSet:
		a.str(unix.NFTA_SET_TABLE, b.table)
		a.str(unix.NFTA_SET_NAME, o.Set.Name)
		b.add(i, unix.NFT_MSG_DELSET, o.V6, 0, &a)
	case nftables.AddChain:
		writeChain(&a, b.table, o.Chain)
		b.add(i, unix.NFT_MSG_NEWCHAIN, o.V6, netlink.Create, &a)
	case nftables.DelChain:
		a.str(unix.NFTA_CHAIN_TABLE, b.table)
		a.str(unix.NFTA_CHAIN_NAME, o.Chain.Name)
		b.add(i, unix.NFT_MSG_DELCHAIN, o.V6, 0, &a)
	case nftables.FlushChain, nftables.EmptyChain:
		a.str(unix.NFTA_RULE_TABLE, b.table)
		a.str(unix.NFTA_RULE_CHAIN, o.Chain.Name)
		b.add(i, unix.NFT_MSG_DELRULE, o.V6, 0, &a)
	case nftables.AddRule:
		if err := writeRule(&a, b.table, o); err != nil {
			return fmt.Errorf("chain %s: %w", o.Chain.Name, err)
		}
		b.add(i, unix.NFT_MSG_NEWRULE, o.V6, netlink.Create|netlink.Append, &a)
	default:
		return fmt.Errorf("nftables action %d is unknown", o.Action)
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
	open := map[setOf]*elemMessage{}
	n := i
	for ; n < len(ops) && ops[n].Action == ops[i].Action; n++ {
		e := ops[n].Elem
		s := setOf{e.V6, e.Kind}
		m := open[s]
		if m == nil {
			m = newElemMessage(b.table, n, e)
			open[s] = m
		}
		m.add(e)
		if m.n == elemsPerMessage {
			b.add(m.op, msg, e.V6, flags, m.end())
			delete(open, s)
		}
	}
	for _, v6 := range []bool{false, true} {
		for _, k := range nftables.LayoutKinds() {
			if m := open[setOf{v6, k}]; m != nil {
				b.add(m.op, msg, v6, flags, m.end())
			}
		}
	}
	return n - i
}

type setOf struct {
	v6   bool
	kind nftables.Kind
}

// elemMessage is a NEWSETELEM or DELSETELEM message being filled.
type elemMessage struct {
	attrs
	op, n, list int
}

func newElemMessage(table string, op int, e *nftables.Elem) *elemMessage {
	m := &elemMessage{op: op}
	m.str(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	m.str(unix.NFTA_SET_ELEM_LIST_SET, e.Kind.String())
	m.list = m.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED)
	return m
}

func (m *elemMessage) end() *attrs {
	m.close(m.list)
	return &m.attrs
}

const elemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END

func (m *elemMessage) add(e *nftables.Elem) {
	m.n++
	at := m.open(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
	key := e.Key
	if e.Kind.Interval() {
		key = e.Key[:len(e.Key)/2]
		m.value(elemKeyEnd, e.Key[len(e.Key)/2:])
	}
	m.value(unix.NFTA_SET_ELEM_KEY, key)
	switch e.Kind.Data() {
	case nftables.Target, nftables.ClassOf:
		m.value(unix.NFTA_SET_ELEM_DATA, e.Data)
	case nftables.Verdict:
		m.nest(unix.NFTA_SET_ELEM_DATA, func() {
			m.nest(unix.NFTA_DATA_VERDICT, func() {
				m.u32(unix.NFTA_VERDICT_CODE, verdictGoto)
				m.str(unix.NFTA_VERDICT_CHAIN, e.Data)
			})
		})
	}
	if e.Comment != "" {
		var u udata
		u.str(0, e.Comment) // NFTNL_UDATA_SET_ELEM_COMMENT
		m.bytes(unix.NFTA_SET_ELEM_USERDATA, u.b)
	}
	m.close(at)
}

func (m *elemMessage) value(typ uint16, v string) {
	at := m.open(typ | unix.NLA_F_NESTED)
	m.data(unix.NFTA_DATA_VALUE, v)
	m.close(at)
}

const verdictGoto uint32 = 1<<32 + unix.NFT_GOTO

// commit sends the transaction and reads one answer per message. The error names the
// first Op refused.
func (b *rulesBatch) commit(c *netlink.Conn, ops []nftables.Op) error {
	edge := func(t netlink.HeaderType) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: t, Flags: netlink.Request}, Data: []byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	all := make([]netlink.Message, 0, len(b.msgs)+2)
	all = append(append(append(all, edge(unix.NFNL_MSG_BATCH_BEGIN)), b.msgs...), edge(unix.NFNL_MSG_BATCH_END))
	if _, err := c.SendMessages(all); err != nil {
		return fmt.Errorf("send %d messages: %w", len(all), err)
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
