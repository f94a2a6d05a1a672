package proxy

import (
	"maps"
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/packet"
)

// guard keeps what a node lives by out of reach of externalIPs and load balancer
// addresses, which anybody who may create a Service can write: the API server (this
// program could never again learn that the Service is gone) and the kubelets. A cluster
// address needs no guard: the API server gives it out.
type guard struct {
	apiServers map[netip.AddrPort]bool
	nodes      []*model.Node
	kubelets   map[uint16]bool // the ports any of nodes' kubelets has
	// binds says a VIP becomes the node's own address, whole; local tells which are.
	binds bool
	local func(netip.Addr) bool
}

func newGuard(snap *model.Snapshot, p *Plan) guard {
	cfg := p.Config
	g := guard{apiServers: map[netip.AddrPort]bool{}, nodes: snap.Nodes, kubelets: map[uint16]bool{},
		binds: cfg.Mode.Traits().BindsVIPs, local: p.isLocal}
	for _, a := range cfg.APIServers {
		g.apiServers[a] = true
	}
	if svc := snap.Service(model.Name{Namespace: "default", Name: "kubernetes"}); svc != nil {
		for _, e := range svc.Endpoints {
			for _, p := range e.Ports {
				g.apiServers[netip.AddrPortFrom(e.Addr, p.Port)] = true
			}
		}
	}
	for _, n := range snap.Nodes {
		if n.KubeletPort != 0 {
			g.kubelets[n.KubeletPort] = true
		}
	}
	return g
}

// equal tells whether o refuses the same. What lives where may change any time when VIPs
// become addresses, so that is always asked anew.
func (g guard) equal(o guard) bool {
	return !g.binds && !o.binds && maps.Equal(g.apiServers, o.apiServers) && maps.Equal(g.kubelets, o.kubelets) && slices.Equal(g.nodes, o.nodes)
}

// refuses says whose k is when sp must not have it, else "".
func (g guard) refuses(k frontKey, sp *ServicePort) string {
	if k.addr == sp.ClusterIP || k.addr.IsUnspecified() {
		return ""
	}
	if g.binds && !g.local(k.addr) {
		if whose := g.livesAt(k.addr, sp); whose != "" {
			return whose
		}
	}
	if k.proto != packet.TCP {
		return ""
	}
	if g.apiServers[netip.AddrPortFrom(k.addr, k.port)] && !g.leadsThere(sp) {
		return "the API server's own address"
	}
	if !g.kubelets[k.port] {
		return ""
	}
	for _, n := range g.nodes {
		if n.KubeletPort == k.port && (slices.Contains(n.InternalIPs, k.addr) || slices.Contains(n.ExternalIPs, k.addr)) {
			return "the kubelet of node " + n.Name
		}
	}
	return ""
}

// livesAt says who has an address of its own that this node, were it bound here, could
// no longer reach at all.
func (g guard) livesAt(a netip.Addr, sp *ServicePort) string {
	for s := range g.apiServers {
		if s.Addr() == a && !g.leadsThere(sp) {
			return "the API server's own address"
		}
	}
	for _, n := range g.nodes {
		if slices.Contains(n.InternalIPs, a) || slices.Contains(n.ExternalIPs, a) {
			return "an address of node " + n.Name + ", and this mode binds all addresses it serves"
		}
	}
	return ""
}

// leadsThere tells whether every endpoint of sp is an API server: a balancer in front
// of them is a Service like any other.
func (g guard) leadsThere(sp *ServicePort) bool {
	ends := slices.Concat(sp.Cluster, sp.Local)
	return len(ends) > 0 && !slices.ContainsFunc(ends, func(e Endpoint) bool { return !g.apiServers[e.Addr] })
}
