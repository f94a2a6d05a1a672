package nftables

import (
	"net/netip"

	"fairway/proxy"
)

const (
	servicesChain    = "services"
	unallocatedChain = "unallocated"
)

// chain is the chain that looks endpoints up in a pool's map.
func (k Kind) chain() string { return "to-" + k.String() }

func orDrop(kind Kind, m uint32, pick Pick) Rule {
	if m == 0 {
		return Rule{Drop{}}
	}
	return Rule{SetIndex{m, pick}, Goto{kind.chain()}}
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

// baseChains are the three hooked chains, the chain of the decisions and those of pools. own tells
// whether any Service has chains of its own: without one the packets of nobody are
// spared the lookup.
func (c *compiler) baseChains(v6, ownServices, ownNodePorts bool) []*Chain {
	rules := []Rule{{SetClass{Services}, VMap{Classes}}}
	if ownServices {
		rules = append(rules, Rule{VMap{OwnServices}})
	}
	rules = append(rules, c.nodePortRules(v6, SetClass{NodePorts}, VMap{Classes})...)
	if ownNodePorts {
		rules = append(rules, c.nodePortRules(v6, VMap{OwnNodePorts})...)
	}
	if c.cfg.RejectUnknownPorts {
		rules = append(rules, Rule{InSet{ClusterIPs, false}, Reject{}})
	}
	var out []*Chain
	jump := []Rule{{Jump{servicesChain}}}
	for _, k := range []Kind{Endpoints, LocalEndpoints, NodePortEndpoints, NodePortLocalEndpoints} {
		out = append(out, &Chain{V6: v6, Name: k.chain(), Rules: []Rule{{DNATMap{k}}}})
	}
	if drops := c.unallocated(v6); len(drops) > 0 {
		rules = append(rules, Rule{Jump{unallocatedChain}})
		out = append(out, &Chain{V6: v6, Name: unallocatedChain, Rules: drops})
	}
	return append(out, []*Chain{
		{V6: v6, Name: servicesChain, Rules: rules},
		{V6: v6, Name: "nat-prerouting", Hook: Prerouting, Rules: jump},
		{V6: v6, Name: "nat-output", Hook: Output, Rules: jump},
		{V6: v6, Name: "nat-postrouting", Hook: Postrouting, Rules: []Rule{
			{DNATed{}, ClearPriority{}},
			{HasMark{c.mark()}, FlipMark{c.mark()}, Masquerade{}},
			{DNATed{}, InSet{Hairpin, false}, Masquerade{}},
		}},
	}...)
}

// unallocated drops what is sent to addresses of the cluster's ranges that nobody has.
func (c *compiler) unallocated(v6 bool) []Rule {
	var rules []Rule
	for _, cidr := range c.cfg.ServiceCIDRs {
		if c.cfg.RejectUnknownPorts && cidr.Addr().Is6() == v6 {
			rules = append(rules, Rule{Addr{Daddr, cidr.Masked(), false}, Drop{}})
		}
	}
	return rules
}

// nodePortRules look NodePorts up for the addresses they answer on, never loopback.
func (c *compiler) nodePortRules(v6 bool, lookup ...Expr) []Rule {
	if c.cfg.NodePortAddresses.Primary {
		a := c.primaryIP(v6)
		if !a.IsValid() {
			return nil
		}
		return []Rule{append(Rule{Addr{Daddr, netip.PrefixFrom(a, a.BitLen()), false}}, lookup...)}
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
		rules = append(rules, append(rule, lookup...))
	}
	if !family {
		rules = []Rule{append(Rule{FibLocal{Daddr}, Addr{Daddr, loop, true}}, lookup...)}
	}
	return rules
}
