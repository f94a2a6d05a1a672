package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairway/proxy"
)

// Compile turns a Plan into a Program. What it made of the same *proxy.ServicePort in
// prev (nil at first) is taken over, as long as the node's settings are the same. Without
// Options a table may have counters or not.
func Compile(prev *Program, plan *proxy.Plan, opts ...Options) *Program {
	c := &compiler{cfg: plan.Config, primary: [2]netip.Addr{plan.PrimaryIP(false), plan.PrimaryIP(true)}}
	for _, o := range opts {
		c.opts = o
	}
	p := &Program{
		V4: true, V6: c.dropsIn(true), settings: c.settings(), strict: len(opts) > 0,
		parts: make([]*Part, 0, len(plan.Ports)), ports: plan.Ports, byUse: map[use]sharedChain{},
	}
	if prev == nil || prev.settings != p.settings {
		prev = &Program{}
	}
	kept := prev.keeper()
	var need needs
	for i, sp := range plan.Ports {
		part := kept(i, len(plan.Ports), sp)
		if part == nil {
			part = c.part(sp)
		}
		p.parts = append(p.parts, part)
		p.V6 = p.V6 || sp.IPv6
		need.add(part)
	}
	p.shared = c.shared(p, need, prev)
	return p
}

// needs is what the parts need of the shared one.
type needs struct {
	uses map[use]bool
	// ownServices and ownNodePorts, by family, tell of frontends with own chains.
	ownServices, ownNodePorts [2]bool
	last                      use
}

func (n *needs) add(p *Part) {
	if n.uses == nil {
		n.uses = map[use]bool{}
	}
	for _, u := range p.uses {
		if u != n.last || len(n.uses) == 0 { // as usual it is
			n.uses[u], n.last = true, u
		}
	}
	if len(p.Chains) > 0 {
		v6 := family(p.port.IPv6)
		n.ownServices[v6] = true
		n.ownNodePorts[v6] = n.ownNodePorts[v6] || p.port.NodePort != 0
	}
}

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
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
	opts    Options
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
	return fmt.Sprint(c.opts, cfg.NodeIPs, cfg.Detector, cfg.MasqueradeAll, cfg.MasqueradeBit, cfg.NodePortAddresses, cfg.RejectUnknownPorts, cfg.ServiceCIDRs)
}

// shared makes the layout's sets, the base chains and the chains in use.
func (c *compiler) shared(p *Program, need needs, prev *Program) *Part {
	out := &Part{}
	for _, v6 := range p.families() {
		for _, k := range LayoutKinds() {
			out.Sets = append(out.Sets, Set{V6: v6, Kind: k, Name: k.String(), Counter: c.opts.Counters && k.Frontend()})
		}
		out.Chains = append(out.Chains, c.baseChains(v6, need.ownServices[family(v6)], need.ownNodePorts[family(v6)])...)
	}
	for _, u := range slices.SortedFunc(maps.Keys(need.uses), use.compare) {
		one, ok := prev.byUse[u]
		if !ok {
			one = c.sharedChain(u)
		}
		p.byUse[u] = one
		out.Chains = append(out.Chains, one.chain)
		out.fixed = append(out.fixed, one.elem)
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

// part compiles one ServicePort, all but its elements.
func (c *compiler) part(sp *proxy.ServicePort) *Part {
	b := &builder{compiler: c, sp: sp, out: &Part{port: sp, by: c}}
	b.build()
	return b.out
}

// elems makes the elements of a ServicePort.
func (c *compiler) elems(sp *proxy.ServicePort) []Elem {
	b := &builder{compiler: c, sp: sp}
	b.reserve()
	b.build()
	return b.finish()
}

// reserve makes room for about what a ServicePort needs: of ten thousand, growing lists
// would be a fifth of the work.
func (b *builder) reserve() {
	sp := b.sp
	fronts := 1 + len(sp.LoadBalancerIPs) + len(sp.ExternalIPs)
	if sp.NodePort != 0 {
		fronts++
	}
	ends := len(sp.Cluster) + len(sp.Local)
	n := fronts*(ends+1) + ends + 1
	size := 24
	if sp.IPv6 {
		size = 48
	}
	b.list, b.ends = make([]Elem, 0, n), make([][2]int, 0, n)
	b.w.buf = make([]byte, 0, n*size)
}

// builder gathers the part of one ServicePort: what needs a name when out is set, else
// the elements. Bytes of all keys go to one string; until then elements hold offsets.
type builder struct {
	*compiler
	sp   *proxy.ServicePort
	out  *Part
	list []Elem
	// frontends leaves out all elements but those.
	frontends bool
	w         writer
	ends      [][2]int // end of key, end of data, per element
}

func (b *builder) build() {
	sp := b.sp
	if sp.Affinity > 0 && sp.HasEndpoints && b.out != nil {
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
	if b.out == nil && !b.frontends {
		b.hairpin()
	}
}

// elem closes the element whose key ends at keyEnd.
func (b *builder) elem(kind Kind, keyEnd int, data, comment string) {
	if b.out != nil {
		b.w.buf = b.w.buf[:0]
		return
	}
	b.list = append(b.list, Elem{V6: b.sp.IPv6, Kind: kind, Data: data, Comment: comment})
	b.ends = append(b.ends, [2]int{keyEnd, len(b.w.buf)})
}

func (b *builder) finish() []Elem {
	all, at := string(b.w.buf), 0
	for i := range b.list {
		e, end := &b.list[i], b.ends[i]
		e.Key = all[at:end[0]]
		if end[1] > end[0] {
			e.Data = all[end[0]:end[1]]
		}
		at = end[1]
	}
	return b.list
}

// claim makes the element of a frontend: its class, or the chain of its own. addr is
// not valid for a NodePort.
func (b *builder) claim(a netip.Addr, port uint16, to way) {
	kind := Services
	if a.IsValid() {
		b.w.addr(a)
	} else {
		kind = NodePorts
	}
	b.w.proto(b.sp.Proto)
	b.w.port(port)
	key := len(b.w.buf)
	if to.chain == "" {
		b.w.class(to.class)
		b.elem(kind, key, "", b.comment())
		return
	}
	b.elem(map[Kind]Kind{Services: OwnServices, NodePorts: OwnNodePorts}[kind], key, to.chain, b.comment())
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
	if b.sp.Affinity > 0 || b.out != nil || b.frontends {
		return // with affinity its chains name the endpoints
	}
	slots := slotsOf(b.sp, list)
	if slots == len(list) {
		for i, e := range list {
			b.slot(kind, addr, port, i, e)
		}
		return
	}
	for i, k := range maglev(list, slots) {
		b.slot(kind, addr, port, i, list[k])
	}
}

func (b *builder) slot(kind Kind, addr netip.Addr, port uint16, i int, e proxy.Endpoint) {
	if addr.IsValid() {
		b.w.addr(addr)
	}
	b.w.proto(b.sp.Proto)
	b.w.port(port)
	b.w.index(uint32(i))
	key := len(b.w.buf)
	b.w.addr(e.Addr.Addr())
	b.w.port(e.Addr.Port())
	b.elem(kind, key, "", "")
}

func (b *builder) clusterIP() {
	sp := b.sp
	b.claim(sp.ClusterIP, sp.Port, b.internalWay())
	b.pool(Endpoints, sp.ClusterIP, sp.Port, sp.Internal())
	if b.cfg.RejectUnknownPorts && b.out == nil && !b.frontends {
		b.w.addr(sp.ClusterIP)
		b.elem(ClusterIPs, len(b.w.buf), "", "")
	}
}

func (b *builder) external(a netip.Addr) {
	b.claim(a, b.sp.Port, b.externalWay(useExternal, useLocal))
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
	b.claim(a, b.sp.Port, b.externalWay(useRestricted, useRestrictedLocal))
	b.externalPools(a)
	if b.out != nil || b.frontends {
		return
	}
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
	b.claim(netip.Addr{}, sp.NodePort, b.externalWay(useNodePort, useNodePortLocal))
	b.pool(NodePortEndpoints, netip.Addr{}, sp.NodePort, sp.Cluster)
	if sp.ExternalLocal {
		b.pool(NodePortLocalEndpoints, netip.Addr{}, sp.NodePort, sp.Local)
	}
}

// hairpin pairs each endpoint address with itself, once. Endpoints of other nodes are
// in it too: a slice need not say which node an endpoint is on, and a pod of another
// node may come by this node's NodePort.
func (b *builder) hairpin() {
	pair := func(list, but []proxy.Endpoint) {
		for i, e := range list {
			a := e.Addr.Addr()
			if i > 0 && list[i-1].Addr.Addr() == a || contains(but, a) {
				continue
			}
			b.w.addr(a)
			b.w.addr(a)
			b.elem(Hairpin, len(b.w.buf), "", "")
		}
	}
	pair(b.sp.Cluster, nil)
	pair(b.sp.Local, b.sp.Cluster)
}

// contains looks in a list in address order.
func contains(list []proxy.Endpoint, a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(list, a, func(e proxy.Endpoint, a netip.Addr) int { return e.Addr.Addr().Compare(a) })
	return found
}
