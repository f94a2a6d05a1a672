package nftables

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"

	"fairway/proxy"
)

// maxOwnName leaves room for prefix and suffix within nft's 255 bytes.
const maxOwnName = 170

// ownName is namespace/service/protocol/port as an nft identifier: what nft could not
// parse, or is too long, is replaced by a hash.
func ownName(k proxy.Key) string {
	s := fmt.Sprintf("%s/%s/%s/%s", k.Service.Namespace, k.Service.Name, k.Proto, k.PortName)
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/-_.", r))
	}
	if len(s) <= maxOwnName && !strings.ContainsFunc(s, bad) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	clean := strings.Map(func(r rune) rune {
		if bad(r) {
			return '_'
		}
		return r
	}, s)
	return fmt.Sprintf("%s-%x", clean[:min(len(clean), maxOwnName-20)], sum[:8])
}

// own is the name of one of the Service's own chains.
func (b *builder) own(what string) string { return "sticky/" + ownName(b.sp.Key) + "/" + what }

func (b *builder) endpointName(a netip.AddrPort) string {
	return fmt.Sprintf("%s/%s/%d", ownName(b.sp.Key), strings.ReplaceAll(a.Addr().String(), ":", "."), a.Port())
}

func (b *builder) endpointChain(a netip.AddrPort) string { return "sticky/" + b.endpointName(a) }

func (b *builder) clients(a netip.AddrPort) string { return "clients/" + b.endpointName(a) }

func (b *builder) chain(name string, rules ...Rule) {
	b.out.Chains = append(b.out.Chains, &Chain{V6: b.sp.IPv6, Name: name, Rules: rules})
}

// sticky makes the chains of a Service with session affinity: one per endpoint that
// learns the client, one per list that finds the client's endpoint or picks one, one
// per kind of frontend. Client sets are named by endpoint, so they live as long as it.
func (b *builder) sticky() {
	sp := b.sp
	seen := map[netip.AddrPort]bool{}
	for _, list := range [][]proxy.Endpoint{sp.Cluster, sp.Local} {
		for _, e := range list {
			if seen[e.Addr] {
				continue
			}
			seen[e.Addr] = true
			b.out.Sets = append(b.out.Sets, Set{V6: sp.IPv6, Kind: Clients, Name: b.clients(e.Addr)})
			b.chain(b.endpointChain(e.Addr), Rule{Learn{b.clients(e.Addr), sp.Affinity}}, Rule{DNAT{sp.Proto, e.Addr}})
		}
	}
	cluster, local := Rule{Goto{b.own("cluster")}}, Rule{Goto{b.own("local")}}
	if len(sp.Cluster) > 0 {
		b.chain(b.own("cluster"), b.pickRules(sp.Cluster)...)
	}
	if len(sp.Local) > 0 {
		b.chain(b.own("local"), b.pickRules(sp.Local)...)
	} else {
		local = Rule{Drop{}}
	}
	if internal := cluster; len(sp.Internal()) > 0 {
		if sp.InternalLocal {
			internal = local
		}
		b.chain(b.own("internal"), b.internalRules(sp.IPv6, internal)...)
	}
	if !sp.External() {
		return
	}
	external := []Rule{{SetMark{b.mark()}}, cluster}
	if sp.ExternalLocal {
		external = b.localRules(sp.IPv6, cluster, local)
	}
	b.chain(b.own("external"), external...)
	if sp.Restricted && len(sp.LoadBalancerIPs) > 0 {
		b.chain(b.own("restricted"), b.firewallRule(), Rule{Goto{b.own("external")}})
	}
}

// pickRules sends a known client to its endpoint and any other to one the scheduler
// chooses. By source address a client's first endpoint follows from its hash, and it is
// remembered, so the list may change: a Maglev table would have nothing to add.
func (b *builder) pickRules(list []proxy.Endpoint) []Rule {
	rules := make([]Rule, 0, 2*len(list))
	for _, e := range list {
		rules = append(rules, Rule{Known{b.clients(e.Addr)}, Goto{b.endpointChain(e.Addr)}})
	}
	pick := pickOf(b.sp)
	for i, e := range list {
		to := Goto{b.endpointChain(e.Addr)}
		left := len(list) - i
		switch {
		case left == 1:
			rules = append(rules, Rule{to})
		case pick == BySource:
			rules = append(rules, Rule{HashIs{uint32(len(list)), uint32(i)}, to})
		default:
			rules = append(rules, Rule{OneIn{uint32(left), pick}, to})
		}
	}
	return rules
}
