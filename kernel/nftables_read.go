package kernel

import (
	"bytes"
	"fmt"
	"strings"

	"fairway/proxy/nftables"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// List reads back what the kernel holds of both tables, as typed rules and elements.
// Clients learned by session affinity are left out: they are state, not program.
func (k *NFTables) List() (*nftables.Program, error) {
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
	r := &rulesReader{k: k, c: c, dump: dump}
	var present [2]bool
	for i, v6 := range []bool{false, true} {
		if present[i], err = r.table(v6); err != nil {
			return nil, fmt.Errorf("list table %s %s: %w", familyName(v6), k.table, err)
		}
	}
	return nftables.Listing(present[0], present[1], r.sets, r.chains, r.elems), nil
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
}

// table reads one table; false when there is none.
func (r *rulesReader) table(v6 bool) (bool, error) {
	t := r.k.tableOf(v6)
	tables, err := r.c.ListTablesOfFamily(t.Family)
	if err != nil {
		return false, err
	}
	found := false
	for _, have := range tables {
		found = found || have.Name == t.Name
	}
	if !found {
		return false, nil
	}
	sets, err := r.c.GetSets(t)
	if err != nil {
		return false, fmt.Errorf("sets: %w", err)
	}
	for _, s := range sets {
		if err := r.set(s, v6); err != nil {
			return false, err
		}
	}
	chains, err := r.c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return false, fmt.Errorf("chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name != t.Name {
			continue
		}
		if err := r.chain(t, c, v6); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *rulesReader) set(s *nft.Set, v6 bool) error {
	kind := setKind(s, v6)
	r.sets = append(r.sets, nftables.Set{V6: v6, Kind: kind, Name: s.Name})
	if kind == nftables.Foreign || kind == nftables.Clients {
		return nil
	}
	err := dumpElems(r.dump, r.k.table, nftables.Set{V6: v6, Kind: kind, Name: s.Name}, func(e nftables.Elem) { r.elems = append(r.elems, e) })
	if err != nil {
		return fmt.Errorf("set %s: %w", s.Name, err)
	}
	return nil
}

// setKind tells which of the layout's sets s is: the name and the shape must agree.
func setKind(s *nft.Set, v6 bool) nftables.Kind {
	if s.Anonymous {
		return nftables.Foreign
	}
	kinds := nftables.LayoutKinds()
	if strings.HasPrefix(s.Name, nftables.Clients.String()+"/") {
		kinds = []nftables.Kind{nftables.Clients}
	}
	for _, k := range kinds {
		if k != nftables.Clients && s.Name != k.String() {
			continue
		}
		// The library loses the key's length of a verdict map.
		sameKey := int(s.KeyType.Bytes) == k.KeySize(v6) || k.Data() == nftables.Verdict
		if sameKey && readFlags(s) == setFlags(k) {
			return k
		}
	}
	return nftables.Foreign
}

func readFlags(s *nft.Set) uint32 {
	flags := uint32(0)
	for _, f := range []struct {
		on  bool
		bit uint32
	}{
		{s.IsMap, unix.NFT_SET_MAP}, {s.Interval, unix.NFT_SET_INTERVAL}, {s.Concatenation, flagConcat},
		{s.HasTimeout, unix.NFT_SET_TIMEOUT}, {s.Dynamic, unix.NFT_SET_EVAL}, {s.Constant, unix.NFT_SET_CONSTANT},
	} {
		if f.on {
			flags |= f.bit
		}
	}
	return flags
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
