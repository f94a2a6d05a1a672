package kernel

import (
	"fmt"
	"net/netip"
	"time"

	"fairway/packet"
	"fairway/proxy/nftables"
)

// probeTable is made and deleted again by Probe. None of its rules matches a packet.
const probeTable = "fairway-probe"

// MissingFeature is something the nftables mode needs and this kernel refuses.
type MissingFeature struct {
	Feature string
	Err     error
}

func (m MissingFeature) Error() string { return m.Feature + ": " + m.Err.Error() }

// Unwrap gives the kernel's error.
func (m MissingFeature) Unwrap() error { return m.Err }

// Probe asks the kernel for each feature the mode needs in one family, by using it, and
// returns what is missing.
func (k *NFTables) Probe(v6 bool) []MissingFeature {
	defer k.close()
	var missing []MissingFeature
	for _, f := range probes(v6) {
		ops := []nftables.Op{{Action: nftables.AddTable, V6: v6}}
		for i := range f.sets {
			ops = append(ops, nftables.Op{Action: nftables.AddSet, V6: v6, Set: &f.sets[i]})
		}
		chain := &nftables.Chain{V6: v6, Name: "probe", Hook: f.hook}
		ops = append(ops, nftables.Op{Action: nftables.AddChain, V6: v6, Chain: chain})
		for _, e := range f.rule {
			// A rule behind a match that never holds: the base chain is live.
			never := nftables.Iif{Name: probeTable}
			ops = append(ops, nftables.Op{Action: nftables.AddRule, V6: v6, Chain: chain, Rule: nftables.Rule{never, e}})
		}
		err := k.transaction(probeTable, ops)
		if err == nil {
			err = k.transaction(probeTable, []nftables.Op{{Action: nftables.DelTable, V6: v6}})
		}
		if err != nil {
			missing = append(missing, MissingFeature{f.name, err})
		}
		if f.basic && err != nil {
			break // without it nothing else can be asked
		}
	}
	return missing
}

type probe struct {
	name  string
	basic bool
	hook  nftables.Hook
	sets  []nftables.Set
	rule  []nftables.Expr
}

func probes(v6 bool) []probe {
	layout := func(kinds ...nftables.Kind) []nftables.Set {
		var out []nftables.Set
		for _, k := range kinds {
			out = append(out, nftables.Set{V6: v6, Kind: k, Name: k.String()})
		}
		return out
	}
	clients := nftables.Set{V6: v6, Kind: nftables.Clients, Name: "clients/probe"}
	addr := netip.MustParseAddr("192.0.2.1")
	if v6 {
		addr = netip.MustParseAddr("2001:db8::1")
	}
	return []probe{
		{name: "nf_tables (CONFIG_NF_TABLES)", basic: true},
		{name: "NAT chains (CONFIG_NFT_NAT)", basic: true, hook: nftables.Prerouting, rule: []nftables.Expr{nftables.DNAT{Proto: packet.TCP, To: netip.AddrPortFrom(addr, 1)}}},
		{name: "NAT of what the node sends", hook: nftables.Output},
		{name: "verdict maps", hook: nftables.Prerouting, sets: layout(nftables.OwnServices), rule: []nftables.Expr{nftables.VMap{Set: nftables.OwnServices}}},
		{name: "maps to a packet's priority", hook: nftables.Prerouting, sets: layout(nftables.Services), rule: []nftables.Expr{nftables.SetClass{Set: nftables.Services}}},
		{name: "verdict maps by a packet's priority", hook: nftables.Prerouting, sets: layout(nftables.Classes), rule: []nftables.Expr{nftables.VMap{Set: nftables.Classes}}},
		{name: "maps from a packet's priority to addresses", hook: nftables.Prerouting, sets: layout(nftables.Endpoints),
			rule: []nftables.Expr{nftables.ClearPriority{}, nftables.DNATMap{Set: nftables.Endpoints}}},
		{name: "random and counted numbers (CONFIG_NFT_NUMGEN)", hook: nftables.Prerouting,
			rule: []nftables.Expr{nftables.SetIndex{N: 2}, nftables.SetIndex{N: 2, Pick: nftables.InTurn}, nftables.OneIn{N: 2}}},
		{name: "hashes of addresses (CONFIG_NFT_HASH)", hook: nftables.Prerouting,
			rule: []nftables.Expr{nftables.SetIndex{N: 2, Pick: nftables.BySource}, nftables.HashIs{N: 2}}},
		{name: "reject before routing (Linux 5.9)", hook: nftables.Prerouting, rule: []nftables.Expr{nftables.Reject{}}},
		{name: "ranges over several fields (Linux 5.6)", sets: layout(nftables.SourceRanges), rule: []nftables.Expr{nftables.InSet{Set: nftables.SourceRanges, Not: true}}},
		{name: "sets filled by rules", sets: []nftables.Set{clients}, rule: []nftables.Expr{nftables.Known{Set: clients.Name}, nftables.Learn{Set: clients.Name, Timeout: time.Minute}}},
		{name: "address type of the routing table (CONFIG_NFT_FIB)", hook: nftables.Prerouting, rule: []nftables.Expr{nftables.FibLocal{Field: nftables.Saddr}, nftables.FibLocal{Field: nftables.Daddr}}},
		{name: "masquerade (CONFIG_NFT_MASQ)", hook: nftables.Postrouting,
			rule: []nftables.Expr{nftables.DNATed{}, nftables.HasMark{Bit: 1}, nftables.FlipMark{Bit: 1}, nftables.Masquerade{}}},
	}
}

// ProbeError tells of missing features in one sentence.
func ProbeError(v6 bool, missing []MissingFeature) error {
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s: this kernel lacks %d feature(s) the nftables mode needs, first %w", familyName(v6), len(missing), missing[0])
}
