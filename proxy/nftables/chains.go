package nftables

import (
	"cmp"
	"fmt"
	"net/netip"

	"fairway/proxy"
)

const servicesChain = "services"

// use names a chain shared by all frontends of equal shape: what is done, and among
// how many endpoints.
type use struct {
	v6   bool
	what shape
	n, m uint32 // Cluster and Local endpoints
}

type shape uint8

const (
	useNoEndpoints shape = iota
	useNoLocal
	useInternal
	useExternal
	useLocal
	useRestricted
	useRestrictedLocal
	useNodePort
	useNodePortLocal
)

func (u use) compare(o use) int {
	b := func(v bool) int {
		if v {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b(u.v6), b(o.v6)), cmp.Compare(u.what, o.what), cmp.Compare(u.n, o.n), cmp.Compare(u.m, o.m))
}

func (u use) name() string {
	switch u.what {
	case useNoEndpoints:
		return "no-endpoints"
	case useNoLocal:
		return "no-local-endpoints"
	case useInternal:
		return fmt.Sprintf("internal-%d", u.n)
	case useExternal:
		return fmt.Sprintf("external-%d", u.n)
	case useLocal:
		return fmt.Sprintf("local-%d-%d", u.n, u.m)
	case useRestricted:
		return fmt.Sprintf("restricted-%d", u.n)
	case useRestrictedLocal:
		return fmt.Sprintf("restricted-local-%d-%d", u.n, u.m)
	case useNodePort:
		return fmt.Sprintf("nodeport-%d", u.n)
	}
	return fmt.Sprintf("nodeport-local-%d-%d", u.n, u.m)
}

// useChain writes the rules of a shared chain.
func (c *compiler) useChain(u use) *Chain {
	var rules []Rule
	switch u.what {
	case useNoEndpoints:
		rules = []Rule{{Reject{}}}
	case useNoLocal:
		rules = []Rule{{Drop{}}}
	case useInternal:
		rules = c.internalRules(u.v6, Rule{DNATMap{Endpoints, u.n}})
	case useExternal, useRestricted:
		rules = []Rule{{SetMark{c.mark()}}, {DNATMap{Endpoints, u.n}}}
	case useNodePort:
		rules = []Rule{{SetMark{c.mark()}}, {DNATMap{NodePortEndpoints, u.n}}}
	case useLocal, useRestrictedLocal:
		rules = c.localRules(u.v6, Rule{DNATMap{Endpoints, u.n}}, localOrDrop(LocalEndpoints, u.m))
	case useNodePortLocal:
		rules = c.localRules(u.v6, Rule{DNATMap{NodePortEndpoints, u.n}}, localOrDrop(NodePortLocalEndpoints, u.m))
	}
	if u.what == useRestricted || u.what == useRestrictedLocal {
		rules = append([]Rule{c.firewallRule()}, rules...)
	}
	return &Chain{V6: u.v6, Name: u.name(), Rules: rules}
}

func localOrDrop(kind Kind, m uint32) Rule {
	if m == 0 {
		return Rule{Drop{}}
	}
	return Rule{DNATMap{kind, m}}
}

func (c *compiler) firewallRule() Rule { return Rule{InSet{SourceRanges, true}, Drop{}} }

func (c *compiler) mark() uint32 { return 1 << c.cfg.MasqueradeBit }

// fromPod matches packets from this node's pods, or from everybody else; false when
// the detector cannot tell.
func (c *compiler) fromPod(v6, invert bool) (Expr, bool) {
	d := c.cfg.Detector
	if !d.Implemented(v6) {
		return nil, false
	}
	if cidr, ok := d.CIDR(v6); ok {
		return Addr{Saddr, cidr.Masked(), invert}, true
	}
	return Iif{d.Interface, d.Mode == proxy.DetectInterfaceNamePrefix, invert}, true
}

// internalRules: traffic to a cluster address, masqueraded always, for all but pods of
// this node, or never.
func (c *compiler) internalRules(v6 bool, to Rule) []Rule {
	if c.cfg.MasqueradeAll {
		return []Rule{{SetMark{c.mark()}}, to}
	}
	if other, ok := c.fromPod(v6, true); ok {
		return []Rule{{other, SetMark{c.mark()}}, to}
	}
	return []Rule{to}
}

// localRules is externalTrafficPolicy Local: pods of this node and the node itself
// take the Cluster pool, the node masqueraded; the rest takes the Local pool with its
// source kept.
func (c *compiler) localRules(v6 bool, cluster, local Rule) []Rule {
	var rules []Rule
	if pod, ok := c.fromPod(v6, false); ok {
		rules = append(rules, append(Rule{pod}, cluster...))
	}
	node := Rule{FibLocal{Saddr}, SetMark{c.mark()}}
	return append(rules, append(node, cluster...), local)
}

// baseChains are the three hooked chains and the chain of the decisions.
func (c *compiler) baseChains(v6 bool) []*Chain {
	rules := []Rule{{VMap{Services}}}
	rules = append(rules, c.nodePortRules(v6)...)
	if c.cfg.RejectUnknownPorts {
		rules = append(rules, Rule{InSet{ClusterIPs, false}, Reject{}})
		for _, cidr := range c.cfg.ServiceCIDRs {
			if cidr.Addr().Is6() == v6 {
				rules = append(rules, Rule{Addr{Daddr, cidr.Masked(), false}, Drop{}})
			}
		}
	}
	jump := []Rule{{Jump{servicesChain}}}
	return []*Chain{
		{V6: v6, Name: servicesChain, Rules: rules},
		{V6: v6, Name: "nat-prerouting", Hook: Prerouting, Rules: jump},
		{V6: v6, Name: "nat-output", Hook: Output, Rules: jump},
		{V6: v6, Name: "nat-postrouting", Hook: Postrouting, Rules: []Rule{
			{HasMark{c.mark()}, FlipMark{c.mark()}, Masquerade{}},
			{DNATed{}, InSet{Hairpin, false}, Masquerade{}},
		}},
	}
}

// nodePortRules look NodePorts up for the addresses they answer on, never loopback.
func (c *compiler) nodePortRules(v6 bool) []Rule {
	if c.cfg.NodePortAddresses.Primary {
		a := c.primaryIP(v6)
		if !a.IsValid() {
			return nil
		}
		return []Rule{{Addr{Daddr, netip.PrefixFrom(a, a.BitLen()), false}, VMap{NodePorts}}}
	}
	loop := netip.MustParsePrefix("127.0.0.0/8")
	if v6 {
		loop = netip.MustParsePrefix("::1/128")
	}
	var rules []Rule
	family := false
	for _, cidr := range c.cfg.NodePortAddresses.CIDRs {
		if cidr.Addr().Is6() != v6 {
			continue
		}
		family = true
		rule := Rule{FibLocal{Daddr}, Addr{Daddr, cidr.Masked(), false}}
		if cidr.Overlaps(loop) {
			rule = append(rule, Addr{Daddr, loop, true})
		}
		rules = append(rules, append(rule, VMap{NodePorts}))
	}
	if !family {
		rules = []Rule{{FibLocal{Daddr}, Addr{Daddr, loop, true}, VMap{NodePorts}}}
	}
	return rules
}

// use asks for a shared chain and gives its name.
func (b *builder) use(what shape, n, m int) string {
	u := use{b.sp.IPv6, what, uint32(n), uint32(m)}
	b.out.uses = append(b.out.uses, u)
	return u.name()
}

func (b *builder) internalChain() string {
	sp := b.sp
	switch {
	case !sp.HasEndpoints:
		return b.use(useNoEndpoints, 0, 0)
	case sp.InternalLocal && len(sp.Local) == 0:
		return b.use(useNoLocal, 0, 0)
	case sp.Affinity > 0:
		return b.own("internal")
	}
	return b.use(useInternal, len(sp.Internal()), 0)
}

// externalChain picks the chain of an external frontend: by policy, or the Service's
// own one when it has affinity.
func (b *builder) externalChain(cluster, local shape, own string) string {
	sp := b.sp
	switch {
	case !sp.HasEndpoints:
		return b.use(useNoEndpoints, 0, 0)
	case sp.Affinity > 0:
		return b.own(own)
	case sp.ExternalLocal:
		return b.use(local, len(sp.Cluster), len(sp.Local))
	}
	return b.use(cluster, len(sp.Cluster), 0)
}
