package nftables

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/proxy"
)

// Compile turns a Plan into a Program. What it made of the same *proxy.ServicePort in
// prev (nil at first) is taken over, as long as the node's settings are the same.
func Compile(prev *Program, plan *proxy.Plan) *Program {
	c := compiler{cfg: plan.Config, primary: [2]netip.Addr{plan.PrimaryIP(false), plan.PrimaryIP(true)}}
	p := &Program{
		V4: true, V6: c.dropsIn(true), settings: c.settings(),
		parts: make([]*Part, 0, len(plan.Ports)), ports: plan.Ports, byUse: map[use]*Chain{},
	}
	if prev == nil || prev.settings != p.settings {
		prev = &Program{}
	}
	kept := prev.keeper()
	needed, last := map[use]bool{}, use{}
	for i, sp := range plan.Ports {
		part := kept(i, len(plan.Ports), sp)
		if part == nil {
			part = c.part(sp)
		}
		p.parts = append(p.parts, part)
		p.V6 = p.V6 || sp.IPv6
		for _, u := range part.uses {
			if u != last || len(needed) == 0 {
				needed[u], last = true, u
			}
		}
	}
	p.shared = c.shared(p, needed, prev)
	return p
}

// keeper finds the part made from a ServicePort: at the same place, counted from the
// start or from the end, or by a map that is only made when need be.
func (p *Program) keeper() func(i, n int, sp *proxy.ServicePort) *Part {
	var byPort map[*proxy.ServicePort]*Part
	return func(i, n int, sp *proxy.ServicePort) *Part {
		for _, at := range []int{i, i + len(p.ports) - n} {
			if at >= 0 && at < len(p.ports) && p.ports[at] == sp {
				return p.parts[at]
			}
		}
		if byPort == nil {
			byPort = make(map[*proxy.ServicePort]*Part, len(p.ports))
			for k, have := range p.ports {
				byPort[have] = p.parts[k]
			}
		}
		return byPort[sp]
	}
}

type compiler struct {
	cfg     proxy.Config
	primary [2]netip.Addr
}

func (c *compiler) primaryIP(v6 bool) netip.Addr {
	if v6 {
		return c.primary[1]
	}
	return c.primary[0]
}

// dropsIn tells whether unallocated addresses of a family are dropped, which needs its
// table even while no Service is in it.
func (c *compiler) dropsIn(v6 bool) bool {
	return c.cfg.RejectUnknownPorts && slices.ContainsFunc(c.cfg.ServiceCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
}

// settings prints what chains and elements are made from besides ServicePorts.
func (c *compiler) settings() string {
	cfg := c.cfg
	return fmt.Sprint(cfg.NodeIPs, cfg.Detector, cfg.MasqueradeAll, cfg.MasqueradeBit, cfg.NodePortAddresses, cfg.RejectUnknownPorts, cfg.ServiceCIDRs)
}

// shared makes the layout's sets, the base chains and the chains in use.
func (c *compiler) shared(p *Program, needed map[use]bool, prev *Program) *Part {
	out := &Part{}
	for _, v6 := range p.families() {
		for _, k := range LayoutKinds() {
			out.Sets = append(out.Sets, Set{V6: v6, Kind: k, Name: k.String()})
		}
		out.Chains = append(out.Chains, c.baseChains(v6)...)
	}
	uses := make([]use, 0, len(needed))
	for u := range needed {
		uses = append(uses, u)
	}
	slices.SortFunc(uses, use.compare)
	for _, u := range uses {
		chain := prev.byUse[u]
		if chain == nil {
			chain = c.useChain(u)
		}
		p.byUse[u] = chain
		out.Chains = append(out.Chains, chain)
	}
	return out
}

func (p *Program) families() []bool {
	var out []bool
	if p.V4 {
		out = append(out, false)
	}
	if p.V6 {
		out = append(out, true)
	}
	return out
}

// part compiles one ServicePort.
func (c *compiler) part(sp *proxy.ServicePort) *Part {
	b := &builder{compiler: c, sp: sp, out: &Part{Owner: sp.Ref()}}
	if sp.Affinity > 0 && sp.HasEndpoints {
		b.sticky()
	}
	if sp.ClusterIP.IsValid() {
		b.clusterIP()
	}
	for _, a := range sp.LoadBalancerIPs {
		b.loadBalancer(a)
	}
	for _, a := range sp.ExternalIPs {
		// The load balancer's address wins, with its source ranges.
		if !slices.Contains(sp.LoadBalancerIPs, a) {
			b.external(a)
		}
	}
	if sp.NodePort != 0 {
		b.nodePort()
	}
	b.hairpin()
	return b.finish()
}

// builder gathers the part of one ServicePort. Bytes of all keys go to one string;
// until then elements hold offsets.
type builder struct {
	*compiler
	sp   *proxy.ServicePort
	out  *Part
	w    writer
	ends [][2]int // end of key, end of data, per element
}

// elem closes the element whose key ends at keyEnd.
func (b *builder) elem(kind Kind, keyEnd int, data, comment string) {
	b.out.Elems = append(b.out.Elems, Elem{V6: b.sp.IPv6, Kind: kind, Data: data, Comment: comment})
	b.ends = append(b.ends, [2]int{keyEnd, len(b.w.buf)})
}

func (b *builder) finish() *Part {
	all, at := string(b.w.buf), 0
	for i := range b.out.Elems {
		e, end := &b.out.Elems[i], b.ends[i]
		e.Key = all[at:end[0]]
		if end[1] > end[0] {
			e.Data = all[end[0]:end[1]]
		}
		at = end[1]
	}
	return b.out
}

// claim makes the element of the services map.
func (b *builder) claim(a netip.Addr, chain string) {
	b.w.addr(a)
	b.w.proto(b.sp.Proto)
	b.w.port(b.sp.Port)
	b.elem(Services, len(b.w.buf), chain, b.comment())
}

// maxComment is the longest comment nft prints.
const maxComment = 127

func (b *builder) comment() string {
	s := b.sp.Key.String()
	return s[:min(len(s), maxComment)]
}

// pool makes the elements of an endpoint map: the frontend's key, the index, and the
// endpoint. addr is not valid for a NodePort.
func (b *builder) pool(kind Kind, addr netip.Addr, port uint16, list []proxy.Endpoint) {
	if b.sp.Affinity > 0 {
		return // its chains name the endpoints
	}
	for i, e := range list {
		if addr.IsValid() {
			b.w.addr(addr)
		}
		b.w.proto(b.sp.Proto)
		b.w.port(port)
		b.w.index(i)
		key := len(b.w.buf)
		b.w.addr(e.Addr.Addr())
		b.w.port(e.Addr.Port())
		b.elem(kind, key, "", "")
	}
}

func (b *builder) clusterIP() {
	sp := b.sp
	b.claim(sp.ClusterIP, b.internalChain())
	b.pool(Endpoints, sp.ClusterIP, sp.Port, sp.Internal())
	if b.cfg.RejectUnknownPorts {
		b.w.addr(sp.ClusterIP)
		b.elem(ClusterIPs, len(b.w.buf), "", "")
	}
}

func (b *builder) external(a netip.Addr) {
	b.claim(a, b.externalChain(useExternal, useLocal, "external"))
	b.externalPools(a)
}

func (b *builder) externalPools(a netip.Addr) {
	sp := b.sp
	b.pool(Endpoints, a, sp.Port, sp.Cluster)
	if sp.ExternalLocal {
		b.pool(LocalEndpoints, a, sp.Port, sp.Local)
	}
}

func (b *builder) loadBalancer(a netip.Addr) {
	if !b.sp.Restricted || !b.sp.HasEndpoints {
		b.external(a)
		return
	}
	b.claim(a, b.externalChain(useRestricted, useRestrictedLocal, "restricted"))
	b.externalPools(a)
	for _, p := range b.admitted(a) {
		for _, edge := range []netip.Addr{p.Addr(), lastAddr(p)} {
			b.w.addr(a)
			b.w.proto(b.sp.Proto)
			b.w.port(b.sp.Port)
			b.w.addr(edge)
		}
		b.elem(SourceRanges, len(b.w.buf), "", "")
	}
}

// admitted lists the ranges that may reach a load balancer address, none inside
// another (the kernel refuses overlapping intervals). Where the node itself is
// admitted, so is the balancer's own address: the node's packets to it carry it as
// their source.
func (b *builder) admitted(vip netip.Addr) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(b.sp.SourceRanges)+1)
	for _, r := range b.sp.SourceRanges {
		all = append(all, r.Masked())
	}
	if b.sp.AdmitsNode(b.cfg.NodeIPs) {
		all = append(all, netip.PrefixFrom(vip, vip.BitLen()))
	}
	slices.SortFunc(all, func(x, y netip.Prefix) int {
		if x.Bits() != y.Bits() {
			return x.Bits() - y.Bits()
		}
		return x.Addr().Compare(y.Addr())
	})
	var out []netip.Prefix
	for _, r := range all {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Contains(r.Addr()) }) {
			out = append(out, r)
		}
	}
	return out
}

func (b *builder) nodePort() {
	sp := b.sp
	b.w.proto(sp.Proto)
	b.w.port(sp.NodePort)
	b.elem(NodePorts, len(b.w.buf), b.externalChain(useNodePort, useNodePortLocal, "external"), b.comment())
	b.pool(NodePortEndpoints, netip.Addr{}, sp.NodePort, sp.Cluster)
	if sp.ExternalLocal {
		b.pool(NodePortLocalEndpoints, netip.Addr{}, sp.NodePort, sp.Local)
	}
}

// hairpin pairs each endpoint address with itself, once. Endpoints of other nodes are
// in it too: a slice need not say which node an endpoint is on, and a pod of another
// node may come by this node's NodePort.
func (b *builder) hairpin() {
	seen := map[netip.Addr]bool{}
	for _, list := range [][]proxy.Endpoint{b.sp.Cluster, b.sp.Local} {
		for _, e := range list {
			a := e.Addr.Addr()
			if seen[a] {
				continue
			}
			seen[a] = true
			b.w.addr(a)
			b.w.addr(a)
			b.elem(Hairpin, len(b.w.buf), "", "")
		}
	}
}
