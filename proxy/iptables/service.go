package iptables

import (
	"net/netip"
	"slices"
	"time"

	"fairway/proxy"
)

// front is a ServicePort's rules in the shared chains.
type front [sharedChains][]Rule

// front writes a ServicePort's claims: an address that has somewhere to go jumps in
// nat, one that has not is refused in filter.
func (s settings) front(p *part) front {
	var f front
	sp := p.port
	internal, outside := sp.HasEndpoints, sp.HasEndpoints
	if sp.InternalLocal {
		internal = len(sp.Local) > 0
	}
	if sp.ExternalLocal {
		outside = len(sp.Local) > 0
	}
	refused := Target{Verb: Reject}
	why := p.name + " has no endpoints"
	if sp.HasEndpoints {
		refused, why = Target{Verb: Drop}, p.name+" has no local endpoints"
	}
	if sp.ClusterIP.IsValid() {
		if internal {
			f.add(natServices, s.vip(p, sp.ClusterIP, " cluster IP", jump(p.internal())))
		} else {
			r := s.vip(p, sp.ClusterIP, "", refused)
			r.Comment = why
			f.add(filterServices, r)
		}
	}
	if sp.HasEndpoints {
		s.frontExternal(&f, p)
	}
	if !outside {
		s.frontRefused(&f, p, why, refused)
	}
	if p.health != 0 {
		f.add(filterNodePorts, Rule{Comment: p.name + " health check node port",
			Proto: "tcp", DPort: p.health, Target: Target{Verb: Accept}})
	}
	return f
}

func (f *front) add(s shared, r Rule) { f[s] = append(f[s], r) }

func (s settings) vip(p *part, a netip.Addr, comment string, t Target) Rule {
	return Rule{Comment: p.name + comment, Proto: p.port.Proto, Dst: host(a), DPort: p.port.Port, Target: t}
}

// frontExternal captures external addresses, load balancer addresses and the NodePort.
// An externalIP that is also a restricted load balancer address takes the firewall
// chain too: kube-proxy lets it pass there unrestricted.
func (s settings) frontExternal(f *front, p *part) {
	sp := p.port
	for _, a := range sp.ExternalIPs {
		t := jump(p.chain("EXT"))
		if p.firewalled() && slices.Contains(sp.LoadBalancerIPs, a) {
			t = jump(p.chain("FW"))
		}
		f.add(natServices, s.vip(p, a, " external IP", t))
	}
	for _, a := range sp.LoadBalancerIPs {
		if p.firewalled() {
			f.add(natServices, s.vip(p, a, " loadbalancer IP", jump(p.chain("FW"))))
			f.add(filterFirewall, s.vip(p, a, " traffic not accepted by "+p.chain("FW"), Target{Verb: Drop}))
		} else {
			f.add(natServices, s.vip(p, a, " loadbalancer IP", jump(p.chain("EXT"))))
		}
	}
	if sp.NodePort == 0 {
		return
	}
	r := Rule{Comment: p.name, Proto: sp.Proto, DPort: sp.NodePort, Target: jump(p.chain("EXT"))}
	if s.localhost && s.opts.Counters {
		lo := r
		lo.Dst, lo.Counter = Net{Prefix: loopback(false)}, CounterLocalhost
		f.add(natNodePorts, lo)
	}
	f.add(natNodePorts, r)
}

// frontRefused refuses what has no endpoint for traffic from outside. NodePorts are
// refused only where they answer; kube-proxy refuses them on every local address.
func (s settings) frontRefused(f *front, p *part, why string, t Target) {
	sp := p.port
	for _, a := range slices.Concat(sp.ExternalIPs, sp.LoadBalancerIPs) {
		r := s.vip(p, a, "", t)
		r.Comment = why
		f.add(filterExternal, r)
	}
	if sp.NodePort == 0 {
		return
	}
	for _, m := range s.nodePorts {
		m.Comment, m.Proto, m.DPort, m.Target = why, sp.Proto, sp.NodePort, t
		f.add(filterExternal, m)
	}
}

func (p *part) chain(kind string) string { return "KUBE-" + kind + "-" + p.hash }

// internal and external are the chains with the endpoints for the two policies.
func (p *part) internal() string { return p.policy(p.port.InternalLocal) }

func (p *part) external() string { return p.policy(p.port.ExternalLocal) }

func (p *part) policy(local bool) string {
	if local {
		return p.chain("SVL")
	}
	return p.chain("SVC")
}

// firewalled tells whether source ranges apply: only to load balancer addresses, and
// only when there is anything to reach.
func (p *part) firewalled() bool {
	return p.port.HasEndpoints && p.port.Restricted && len(p.port.LoadBalancerIPs) > 0
}

// own writes the chains that belong to a ServicePort alone.
func (s settings) own(p *part) []Chain {
	sp := p.port
	if !sp.HasEndpoints {
		return nil
	}
	names := make(map[netip.AddrPort]string, len(sp.Cluster)+len(sp.Local))
	var out []Chain
	if sp.External() {
		out = append(out, Chain{p.chain("EXT"), s.external(p)})
	}
	if p.firewalled() {
		out = append(out, Chain{p.chain("FW"), s.firewall(p)})
	}
	if len(sp.Cluster) > 0 {
		out = append(out, Chain{p.chain("SVC"), s.balance(p, false, names)})
	}
	if len(sp.Local) > 0 {
		out = append(out, Chain{p.chain("SVL"), s.balance(p, true, names)})
	}
	for _, list := range [][]proxy.Endpoint{sp.Cluster, sp.Local} {
		for _, e := range list {
			if name, ok := names[e.Addr]; ok {
				delete(names, e.Addr)
				out = append(out, Chain{name, s.endpoint(p, e.Addr, name)})
			}
		}
	}
	return out
}

// external is the KUBE-EXT chain: everything is masqueraded, or, with policy Local,
// pods of this node and the node itself take any endpoint and the rest a local one.
func (s settings) external(p *part) []Rule {
	name := p.name + " external destinations"
	if !p.port.ExternalLocal {
		return []Rule{
			{Comment: "masquerade traffic for " + name, Target: jump(kubeMarkMasq)},
			{Target: jump(p.external())},
		}
	}
	var out []Rule
	if s.podKnow {
		r := s.pod
		r.Comment, r.Target = "pod traffic for "+name, jump(p.chain("SVC"))
		out = append(out, r)
	}
	out = append(out,
		Rule{Comment: "masquerade LOCAL traffic for " + name, SrcLocal: true, Target: jump(kubeMarkMasq)},
		Rule{Comment: "route LOCAL traffic for " + name, SrcLocal: true, Target: jump(p.chain("SVC"))})
	if len(p.port.Local) > 0 {
		out = append(out, Rule{Target: jump(p.external())})
	}
	return out
}

// firewall is the KUBE-FW chain: what it lets through never reaches the DROP rule in
// KUBE-PROXY-FIREWALL, because its destination has changed by then. The node itself
// comes from the load balancer's address when that is bound on it.
func (s settings) firewall(p *part) []Rule {
	sp := p.port
	to := Rule{Comment: p.name + " loadbalancer IP", Target: jump(p.chain("EXT"))}
	var out []Rule
	for _, c := range sp.SourceRanges {
		r := to
		r.Src.Prefix = c
		out = append(out, r)
	}
	if sp.AdmitsNode(s.nodeIPs) {
		for _, a := range sp.LoadBalancerIPs {
			r := to
			r.Src = host(a)
			if len(sp.LoadBalancerIPs) > 1 {
				r.Dst = host(a)
			}
			out = append(out, r)
		}
	}
	return append(out, Rule{Comment: "other traffic to " + p.name + " will be dropped by KUBE-PROXY-FIREWALL"})
}

// balance is a KUBE-SVC or KUBE-SVL chain: masquerade for cluster traffic if it is the
// one that takes it, then affinity, then one endpoint at random or in turn. Names of endpoint
// chains are remembered in names.
func (s settings) balance(p *part, local bool, names map[netip.AddrPort]string) []Rule {
	sp := p.port
	list := sp.Cluster
	if local {
		list = sp.Local
	}
	var out []Rule
	if sp.InternalLocal == local && sp.ClusterIP.IsValid() && (s.masqueradeAll || s.podKnow) {
		r := s.vip(p, sp.ClusterIP, " cluster IP", jump(kubeMarkMasq))
		if !s.masqueradeAll {
			r.Src, r.In = s.pod.Src, s.pod.In
			r.Src.Not, r.In.Not = r.Src.IsValid(), r.In.Name != ""
		}
		out = append(out, r)
	}
	for _, e := range list {
		if names[e.Addr] == "" {
			names[e.Addr] = endpointChain(sp.Key, e.Addr)
		}
		if sp.Affinity > 0 {
			r := s.choose(p, e.Addr, names[e.Addr])
			r.Recent = Recent{Name: names[e.Addr], Seconds: max(1, uint32(sp.Affinity/time.Second))}
			out = append(out, r)
		}
	}
	for i, e := range list {
		r := s.choose(p, e.Addr, names[e.Addr])
		switch left := uint32(len(list) - i); {
		case left == 1:
		case sp.Scheduler == proxy.RoundRobin:
			r.Every = left
		default:
			r.OneIn = left
		}
		out = append(out, r)
	}
	return out
}

func (s settings) choose(p *part, ep netip.AddrPort, chain string) Rule {
	r := Rule{Target: jump(chain)}
	if !s.large {
		r.Comment = p.name + " -> " + ep.String()
	}
	return r
}

// endpoint is a KUBE-SEP chain: masquerade for an endpoint that reaches itself, then
// the new destination.
func (s settings) endpoint(p *part, ep netip.AddrPort, name string) []Rule {
	loop := Rule{Src: host(ep.Addr()), Target: jump(kubeMarkMasq)}
	dnat := Rule{Proto: p.port.Proto, Target: Target{Verb: DNAT, To: ep}}
	if !s.large {
		loop.Comment, dnat.Comment = p.name, p.name
	}
	if p.port.Affinity > 0 {
		dnat.Recent.Name = name
	}
	return []Rule{loop, dnat}
}
