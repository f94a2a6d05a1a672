package ipvs

import (
	"net/netip"
	"slices"

	"fairway/proxy"
)

// Table is one of iptables' tables.
type Table struct {
	Name   string
	Chains []Chain
}

// The chains. Marks for IPVS and drops are in mangle, which a packet of the node itself
// passes before IPVS takes it; only there can sets give marks. Nat sees the first packet
// of a flow alone, which is all that masquerade needs. Filter is passed before IPVS by
// what comes in, and by the node's own packets when IPVS knows no such service.
const (
	chainPrefix      = "KUBE-IPVS-"
	chainAny         = chainPrefix + "ANY-ENDPOINT"
	chainFirewall    = chainPrefix + "FIREWALL"
	chainRanges      = chainPrefix + "SOURCE-RANGES"
	chainOutside     = chainPrefix + "OUTSIDE"
	chainWipe        = chainPrefix + "WIPE"
	chainServices    = chainPrefix + "SERVICES"
	chainNodePorts   = chainPrefix + "NODE-PORTS"
	chainPostrouting = chainPrefix + "POSTROUTING"
	chainFilter      = chainPrefix + "FILTER"
	chainVIPs        = chainPrefix + "VIPS"
	chainHealth      = chainPrefix + "HEALTH"
	chainForward     = chainPrefix + "FORWARD"
)

// The tables in the order they are written.
const (
	Mangle = "mangle"
	Nat    = "nat"
	Filter = "filter"
)

func tableNames() []string { return []string{Mangle, Nat, Filter} }

// hook is a rule in one of the kernel's chains that jumps to one of ours.
type hook struct {
	table, chain string
	rule         Rule
}

func hooks() []hook {
	fresh := func(table, chain, to string) hook {
		return hook{table, chain, Rule{State: "NEW", Target: Target{Chain: to}}}
	}
	every := func(table, chain, to string) hook { return hook{table, chain, Rule{Target: Target{Chain: to}}} }
	return []hook{
		fresh(Mangle, "PREROUTING", chainAny), fresh(Mangle, "OUTPUT", chainAny),
		fresh(Mangle, "INPUT", chainFirewall), fresh(Mangle, "OUTPUT", chainFirewall),
		every(Mangle, "POSTROUTING", chainWipe),
		every(Nat, "PREROUTING", chainServices), every(Nat, "OUTPUT", chainServices),
		every(Nat, "POSTROUTING", chainPostrouting),
		fresh(Filter, "INPUT", chainFilter), fresh(Filter, "FORWARD", chainFilter), fresh(Filter, "OUTPUT", chainFilter),
		fresh(Filter, "INPUT", chainHealth), every(Filter, "FORWARD", chainForward),
	}
}

func in(s Set, by string) []Match { return []Match{{Set: s, By: by}} }

func setMark(m uint32) Target { return Target{Verb: SetMark, Value: m, Mask: m} }

// tables writes our chains out.
func (s settings) tables() []Table {
	return []Table{
		{Mangle, []Chain{{chainAny, s.anyEndpoint()}, {chainFirewall, s.firewall()}, {chainRanges, s.sourceRanges()},
			{chainOutside, s.outsideDropped()}, {chainWipe, s.wipe()}}},
		{Nat, []Chain{{chainServices, s.masqueraded()}, {chainNodePorts, s.nodePortRules()}, {chainPostrouting, s.postrouting()}}},
		{Filter, []Chain{{chainFilter, s.filter()}, {chainVIPs, s.vips()}, {chainHealth, s.healthRules()}, {chainForward, s.forward()}}},
	}
}

// pod matches packets of this node's pods; false when nothing tells.
func (s settings) pod() (Rule, bool) {
	var r Rule
	if !s.detector.Implemented(s.v6) {
		return r, false
	}
	if c, ok := s.detector.CIDR(s.v6); ok {
		r.Src.Prefix = c.Masked()
	} else {
		r.In.Name = s.detector.Interface
		if s.detector.Mode == proxy.DetectInterfaceNamePrefix {
			r.In.Name += "+"
		}
	}
	return r, true
}

// anyEndpoint marks new flows of pods and of the node for the services by mark.
func (s settings) anyEndpoint() []Rule {
	var out []Rule
	if r, known := s.pod(); known {
		mark, done := r, r
		mark.Target = Target{Verb: MapMark, Set: AnyEndpointPod}
		done.Target = Target{Verb: Return}
		out = append(out, mark, done)
	}
	return append(out, Rule{SrcLocal: true, Target: Target{Verb: MapMark, Set: AnyEndpointNode}})
}

// wipe takes our marks away once IPVS has seen them: a packet that is wrapped into
// another would hand its mark on. The masquerade bit is still needed.
func (s settings) wipe() []Rule {
	value, mask := s.prefix()
	return []Rule{{Mark: Mark{Value: value, Mask: mask}, Target: Target{Verb: SetMark, Mask: ^s.mark}}}
}

func (s settings) firewall() []Rule {
	return []Rule{
		{Sets: in(InternalDrop, "dst,dst"), Target: Target{Verb: Drop}},
		{Sets: in(LoadBalancerFW, "dst,dst"), Target: Target{Chain: chainRanges}},
		{Sets: in(ExternalDrop, "dst,dst"), Target: Target{Chain: chainOutside}},
	}
}

func (s settings) sourceRanges() []Rule {
	back := Target{Verb: Return}
	return []Rule{
		{Sets: in(LoadBalancerSourceCIDR, "dst,dst,src"), Target: back},
		{Sets: in(LoadBalancerSourceIP, "dst,dst,src"), Target: back},
		{Target: Target{Verb: Drop}},
	}
}

func (s settings) outsideDropped() []Rule {
	var out []Rule
	if r, known := s.pod(); known {
		r.Target = Target{Verb: Return}
		out = append(out, r)
	}
	return append(out, Rule{SrcLocal: true, Target: Target{Verb: Return}}, Rule{Target: Target{Verb: Drop}})
}

// masqueraded marks who is masqueraded. The node's own packets to a VIP come from it,
// where no endpoint could answer.
func (s settings) masqueraded() []Rule {
	masq := setMark(s.mark)
	back := Target{Verb: Return}
	r, known := s.pod()
	r.Src.Not, r.In.Not = r.Src.IsValid(), r.In.Name != ""
	if s.masqueradeAll {
		r, known = Rule{}, true
	}
	r.Sets, r.Target = in(ClusterIP, "dst,dst"), masq
	out := []Rule{{Sets: []Match{{Set: ClusterIP, By: "dst,dst"}, {Set: IPVSIPs, By: "src"}}, Target: masq}}
	if known {
		out = append(out, r)
	}
	out = append(out,
		Rule{Sets: in(ClusterIP, "dst,dst"), Target: back},
		Rule{Sets: in(ExternalIPLocal, "dst,dst"), Target: back},
		Rule{Sets: in(ExternalIP, "dst,dst"), Target: masq},
		Rule{Sets: in(LoadBalancerLocal, "dst,dst"), Target: back},
		Rule{Sets: in(LoadBalancer, "dst,dst"), Target: masq},
	)
	for _, m := range s.nodePortMatches() {
		m.Target = Target{Chain: chainNodePorts}
		out = append(out, m)
	}
	return out
}

// nodePortMatches lists the destinations of NodePorts.
func (s settings) nodePortMatches() []Rule {
	if s.anyNodePort {
		lo := netip.MustParsePrefix("127.0.0.0/8")
		if s.v6 {
			lo = netip.MustParsePrefix("::1/128")
		}
		return []Rule{{DstLocal: true, Dst: Net{lo, true}}}
	}
	var out []Rule
	for _, a := range s.nodePorts {
		out = append(out, Rule{Dst: Net{Prefix: host(a)}})
	}
	return out
}

func (s settings) nodePortRules() []Rule {
	var out []Rule
	for _, p := range []struct {
		proto, by  string
		all, local Set
	}{{"tcp", "dst", NodePortTCP, NodePortLocalTCP}, {"udp", "dst", NodePortUDP, NodePortLocalUDP},
		{"sctp", "dst,dst", NodePortSCTP, NodePortLocalSCTP}} {
		out = append(out,
			Rule{Proto: Proto{Name: p.proto}, Sets: in(p.local, p.by), Target: Target{Verb: Return}},
			Rule{Proto: Proto{Name: p.proto}, Sets: in(p.all, p.by), Target: setMark(s.mark)})
	}
	return out
}

func (s settings) postrouting() []Rule {
	return []Rule{
		{Sets: in(LoopBack, "dst,dst,src"), Target: Target{Verb: Masquerade}},
		{Mark: Mark{s.mark, s.mark, true}, Target: Target{Verb: Return}},
		// Without the mark a packet that passes the stack again is not masqueraded twice.
		{Target: Target{Verb: SetMark, Value: s.mark}},
		{Target: Target{Verb: Masquerade}},
	}
}

// filter refuses what goes to a VIP that has no such port: being an address of the node,
// it would reach the node's own servers.
func (s settings) filter() []Rule {
	if !s.reject {
		return nil
	}
	var out []Rule
	for _, c := range s.serviceCIDRs {
		out = append(out, Rule{Dst: Net{Prefix: c}, Sets: []Match{{Set: IPVSIPs, By: "dst", Not: true}}, Target: Target{Verb: Drop}})
	}
	return append(out, Rule{Sets: in(IPVSIPs, "dst"), Target: Target{Chain: chainVIPs}})
}

func (s settings) vips() []Rule {
	var out []Rule
	for _, set := range []Set{ClusterIP, ExternalIP, ExternalIPLocal, LoadBalancer} {
		out = append(out, Rule{Sets: in(set, "dst,dst"), Target: Target{Verb: Return}})
	}
	icmp := "icmp" // ping is answered
	if s.v6 {
		icmp = "ipv6-icmp"
	}
	return append(out, Rule{Proto: Proto{icmp, true}, Target: Target{Verb: Reject}})
}

func (s settings) healthRules() []Rule {
	return []Rule{{Proto: Proto{Name: "tcp"}, Sets: slices.Concat(in(HealthCheckNodePort, "dst"), []Match{{Set: IPVSIPs, By: "dst", Not: true}}),
		Target: Target{Verb: Accept}}}
}

func (s settings) forward() []Rule {
	return []Rule{
		{Mark: Mark{Value: s.mark, Mask: s.mark}, Target: Target{Verb: Accept}},
		{State: "RELATED,ESTABLISHED", Target: Target{Verb: Accept}},
	}
}
