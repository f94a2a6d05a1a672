package iptables

import "net/netip"

// Table is one of iptables' tables.
type Table struct {
	Name   string
	Chains []Chain
}

// The tables in the order they are written.
const (
	Filter = "filter"
	Nat    = "nat"
	Mangle = "mangle"
)

// hook is a rule in one of the kernel's chains that jumps to one of ours.
type hook struct {
	table, chain string
	rule         Rule
}

// hooks lists the jumps in the order they are put at the head of their chains, so that
// the last one comes to stand first. They are kube-proxy's, and one more: OUTPUT to
// KUBE-EXTERNAL-SERVICES, without which the node's own packets to an external address
// without endpoints would leave for the network instead of being rejected. What comes to
// loopback from outside is kept away from IPv4's Services: KUBE-FIREWALL drops it, but
// not with a destination that is another by then.
//
// One more match than kube-proxy's stands before the chains that refuse: they are for
// packets that were sent to the refused address itself. Without it a Service without
// endpoints could claim the address and port of another's endpoint, as its externalIP
// or as a NodePort, and have the other's packets refused, which carry that destination
// by then. It stands here and not in the rules of Services, which stay kube-proxy's.
func hooks(v6 bool) []hook {
	sent := func(table, chain, to, comment string) hook {
		return hook{table, chain, Rule{State: State{Bits: New}, SentHere: true, Comment: comment, Target: jump(to)}}
	}
	every := func(table, chain, to, comment string) hook {
		return hook{table, chain, Rule{Comment: comment, Target: jump(to)}}
	}
	const (
		external = "kubernetes externally-visible service portals"
		portals  = "kubernetes service portals"
		firewall = "kubernetes load balancer firewall"
	)
	outside := every(Nat, "PREROUTING", kubeServices, portals)
	if !v6 {
		outside.rule.Dst = Net{Prefix: loopback(false), Not: true}
	}
	return []hook{
		sent(Filter, "INPUT", kubeExternal, external),
		sent(Filter, "FORWARD", kubeExternal, external),
		sent(Filter, "OUTPUT", kubeExternal, external),
		every(Filter, "INPUT", kubeNodePorts, "kubernetes health check service ports"),
		sent(Filter, "FORWARD", kubeServices, portals),
		sent(Filter, "OUTPUT", kubeServices, portals),
		every(Filter, "FORWARD", kubeForward, "kubernetes forwarding rules"),
		sent(Filter, "INPUT", kubeProxyFW, firewall),
		sent(Filter, "OUTPUT", kubeProxyFW, firewall),
		sent(Filter, "FORWARD", kubeProxyFW, firewall),
		every(Nat, "OUTPUT", kubeServices, portals),
		outside,
		every(Nat, "POSTROUTING", kubePostrouting, "kubernetes postrouting rules"),
		every(Filter, "INPUT", kubeletFW, ""),
		every(Filter, "OUTPUT", kubeletFW, ""),
	}
}

// shared numbers the chains to which every ServicePort may add rules.
type shared int

const (
	filterNodePorts shared = iota
	filterServices
	filterExternal
	filterFirewall
	natNodePorts
	natServices
	sharedChains
)

func (s shared) table() string {
	if s < natNodePorts {
		return Filter
	}
	return Nat
}

func (s shared) name() string {
	return [...]string{kubeNodePorts, kubeServices, kubeExternal, kubeProxyFW, kubeNodePorts, kubeServices}[s]
}

// fixed is the chains that hold the same rules whatever Services there are.
func (s settings) fixed(table string) []Chain {
	canary := Chain{Name: Canary}
	switch table {
	case Filter:
		return []Chain{canary, {kubeletFW, s.martians()}, {kubeForward, s.forward()}}
	case Nat:
		return []Chain{canary, {kubePostrouting, s.postrouting()},
			{kubeMarkMasq, []Rule{{Target: Target{Verb: OrMark, Bits: s.mark}}}}}
	}
	return []Chain{canary}
}

// martians keeps others from the node's loopback services, which route_localnet would
// open to the link (CVE-2020-8558). The kubelet writes the same rule.
func (s settings) martians() []Rule {
	if !s.localhost {
		return nil
	}
	lo := loopback(false)
	return []Rule{{
		Comment: "block incoming localnet connections",
		Dst:     Net{Prefix: lo}, Src: Net{Prefix: lo, Not: true},
		State:  State{Bits: Related | Established | DNATed, Not: true},
		Target: Target{Verb: Drop},
	}}
}

func (s settings) forward() []Rule {
	var out []Rule
	if !s.opts.Liberal {
		r := Rule{State: State{Bits: Invalid}, Target: Target{Verb: Drop}}
		if s.opts.Counters {
			r.Counter = CounterInvalid
		}
		out = append(out, r)
	}
	return append(out,
		Rule{Comment: "kubernetes forwarding rules", Mark: Mark{Bits: s.mark}, Target: Target{Verb: Accept}},
		Rule{Comment: "kubernetes forwarding conntrack rule", State: State{Bits: Related | Established}, Target: Target{Verb: Accept}},
	)
}

func (s settings) postrouting() []Rule {
	return []Rule{
		{Mark: Mark{Bits: s.mark, Not: true}, Target: Target{Verb: Return}},
		// Without the mark a packet that passes the stack again is not masqueraded twice.
		{Target: Target{Verb: XorMark, Bits: s.mark}},
		{Comment: "kubernetes service traffic requiring SNAT", Target: Target{Verb: Masquerade}},
	}
}

// tail is the rules at the end of KUBE-SERVICES in nat.
func (s settings) tail() []Rule {
	var out []Rule
	for _, m := range s.nodePorts {
		m.Comment = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
		m.Target = jump(kubeNodePorts)
		out = append(out, m)
	}
	return out
}

// shared writes one shared chain out.
func (f *family) shared(s shared) Chain {
	c := Chain{Name: s.name()}
	for _, p := range f.parts {
		c.Rules = append(c.Rules, f.set.front(p)[s]...)
	}
	if s == natServices {
		c.Rules = append(c.Rules, f.set.tail()...)
	}
	return c
}

// tables writes everything out, the kernel's chains with our jumps in them included.
func (f *family) tables() []Table {
	if f.listed != nil {
		return f.listed
	}
	var out []Table
	for _, name := range []string{Filter, Nat, Mangle} {
		t := Table{Name: name, Chains: hooked(name, f.set.v6)}
		t.Chains = append(t.Chains, f.set.fixed(name)...)
		for s := range sharedChains {
			if s.table() == name {
				t.Chains = append(t.Chains, f.shared(s))
			}
		}
		if name == Nat {
			for _, p := range f.parts {
				t.Chains = append(t.Chains, f.set.own(p)...)
			}
		}
		out = append(out, t)
	}
	return out
}

// hooked is the kernel's chains of a table with our jumps at their head.
func hooked(table string, v6 bool) []Chain {
	var out []Chain
	for _, name := range []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} {
		c := Chain{Name: name}
		for _, h := range hooks(v6) {
			if h.table == table && h.chain == name {
				c.Rules = append([]Rule{h.rule}, c.Rules...)
			}
		}
		if len(c.Rules) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func host(a netip.Addr) Net { return Net{Prefix: netip.PrefixFrom(a, a.BitLen())} }
