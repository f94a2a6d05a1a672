package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"fairway/proxy/nftables"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// List reads back what the kernel holds of both tables, as typed rules and elements.
// Clients learned by session affinity are left out: they are state, not program.
func (k *NFTables) List() (*nftables.Program, error) { return k.ListFor(nil) }

// ListFor is List to be compared with want: elements that are as want has them are noted
// and not kept, for of a large cluster they fill the memory.
func (k *NFTables) ListFor(want *nftables.Program) (*nftables.Program, error) {
	if want != nil { // from here on what others write is heard
		if _, _, err := k.Foreign(false, false); err != nil {
			return nil, err
		}
	}
	c, err := k.conn()
	if err != nil {
		return nil, err
	}
	defer c.CloseLasting()
	dump, err := k.dial()
	if err != nil {
		return nil, err
	}
	defer dump.Close()
	var present [2]bool
	for i, v6 := range []bool{false, true} {
		if present[i], err = k.hasTable(c, v6); err != nil {
			return nil, fmt.Errorf("list tables of %s: %w", familyName(v6), err)
		}
	}
	if !present[0] && !present[1] { // a new node: nothing to compare one by one
		return nftables.Listing(false, false, nil, nil, nil, nil), nil
	}
	r := &rulesReader{k: k, c: c, dump: dump, expected: nftables.Expect(want)}
	for i, v6 := range []bool{false, true} {
		if !present[i] {
			continue
		}
		if err := r.table(v6); err != nil {
			return nil, fmt.Errorf("list table %s %s: %w", familyName(v6), k.table, err)
		}
	}
	return nftables.Listing(present[0], present[1], r.sets, r.chains, r.elems, r.expected), nil
}

func familyName(v6 bool) string {
	if v6 {
		return "ip6"
	}
	return "ip"
}

type rulesReader struct {
	k      *NFTables
	c      *nft.Conn
	dump   *netlink.Conn
	sets   []nftables.Set
	chains []*nftables.Chain
	elems  []nftables.Elem

	expected *nftables.Expectation
}

func (k *NFTables) hasTable(c *nft.Conn, v6 bool) (bool, error) {
	t := k.tableOf(v6)
	tables, err := c.ListTablesOfFamily(t.Family)
	return slices.ContainsFunc(tables, func(have *nft.Table) bool { return have.Name == t.Name }), err
}

// table reads one table.
func (r *rulesReader) table(v6 bool) error {
	t := r.k.tableOf(v6)
	var sets []heldSet
	var a attrs
	a.str(unix.NFTA_SET_TABLE, r.k.table)
	if err := dump(r.dump, unix.NFT_MSG_GETSET, v6, &a, func(msg []byte) { sets = append(sets, readSet(msg)) }); err != nil {
		return fmt.Errorf("sets: %w", err)
	}
	for _, s := range sets {
		if err := r.set(s, v6); err != nil {
			return err
		}
	}
	chains, err := r.c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return fmt.Errorf("chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name != t.Name {
			continue
		}
		if err := r.chain(t, c, v6); err != nil {
			return err
		}
	}
	return nil
}

func (r *rulesReader) set(s heldSet, v6 bool) error {
	set := nftables.Set{V6: v6, Kind: s.kind(v6), Name: s.name, Counter: s.counter}
	r.sets = append(r.sets, set)
	if set.Kind == nftables.Foreign || set.Kind == nftables.Clients {
		return nil
	}
	err := dumpElems(r.dump, r.k.table, set, func(e nftables.Elem) {
		if !r.expected.Meet(e) {
			r.elems = append(r.elems, e)
		}
	})
	if err != nil {
		return fmt.Errorf("set %s: %w", s.name, err)
	}
	return nil
}

// heldSet is what the kernel tells of a set.
type heldSet struct {
	name                       string
	flags, keySize, data, size uint32
	counter                    bool
}

func readSet(msg []byte) heldSet {
	var s heldSet
	eachAttr(msg, func(typ uint16, v []byte) {
		number := func(to *uint32) {
			if len(v) == 4 {
				*to = binary.BigEndian.Uint32(v)
			}
		}
		switch typ {
		case unix.NFTA_SET_NAME:
			s.name = strings.TrimRight(string(v), "\x00")
		case unix.NFTA_SET_FLAGS:
			number(&s.flags)
		case unix.NFTA_SET_KEY_LEN:
			number(&s.keySize)
		case unix.NFTA_SET_DATA_TYPE:
			number(&s.data)
		case unix.NFTA_SET_DATA_LEN:
			number(&s.size)
		case setExpr:
			eachAttr(v, func(typ uint16, v []byte) {
				s.counter = s.counter || typ == unix.NFTA_EXPR_NAME && strings.TrimRight(string(v), "\x00") == "counter"
			})
		}
	})
	return s
}

// kind tells which of the layout's sets s is: the name and the shape must agree.
func (s heldSet) kind(v6 bool) nftables.Kind {
	kinds := nftables.LayoutKinds()
	if strings.HasPrefix(s.name, nftables.Clients.String()+"/") {
		kinds = []nftables.Kind{nftables.Clients}
	}
	for _, k := range kinds {
		if k != nftables.Clients && s.name != k.String() {
			continue
		}
		data, size := dataOf(k, v6)
		if int(s.keySize) == k.KeySize(v6) && s.flags == setFlags(k) && s.data == data && (s.size == size || data == typeVerdict) {
			return k
		}
	}
	return nftables.Foreign
}

func (r *rulesReader) chain(t *nft.Table, c *nft.Chain, v6 bool) error {
	out := &nftables.Chain{V6: v6, Name: c.Name, Hook: readHook(c)}
	rules, err := r.c.GetRules(t, c)
	if err != nil {
		return fmt.Errorf("chain %s: %w", c.Name, err)
	}
	for _, rule := range rules {
		out.Rules = append(out.Rules, readRule(rule.Exprs, v6))
	}
	r.chains = append(r.chains, out)
	return nil
}

func readHook(c *nft.Chain) nftables.Hook {
	if c.Hooknum == nil || c.Priority == nil {
		return nftables.NoHook
	}
	for _, h := range []nftables.Hook{nftables.Prerouting, nftables.Output, nftables.Postrouting} {
		if uint32(*c.Hooknum) == hookNumber(h) && int32(*c.Priority) == h.Priority() && c.Type == nft.ChainTypeNAT {
			return h
		}
	}
	return nftables.Hook(fmt.Sprintf("%s hook %d priority %d", c.Type, *c.Hooknum, *c.Priority))
}

// readRule recognizes the expressions this program writes; a rule with any other is
// somebody else's and becomes nftables.Other.
func readRule(exprs []expr.Any, v6 bool) nftables.Rule {
	p := &ruleParser{left: exprs, v6: v6}
	var rule nftables.Rule
	for len(p.left) > 0 {
		e := p.next()
		if e == nil {
			return nftables.Rule{nftables.Other{What: otherText(exprs)}}
		}
		rule = append(rule, e)
	}
	return rule
}

func otherText(exprs []expr.Any) string {
	var b bytes.Buffer
	b.WriteString("# unknown:")
	for _, e := range exprs {
		fmt.Fprintf(&b, " %T%+v", e, e)
	}
	return b.String()
}
