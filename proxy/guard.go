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
// address needs no guard: the API server gives it out. Where what was led to an endpoint
// meets the rules once more, or ends at the node, endpoints of others are out of reach too.
type guard struct {
	// apiServers are true for those that default/kubernetes lists: there one runs.
	apiServers map[netip.AddrPort]bool
	nodes      []*model.Node
	kubelets   map[uint16]bool // the ports any of nodes' kubelets has
	// binds says a VIP becomes the node's own address, whole; local tells which are.
	binds bool
	local func(netip.Addr) bool
	// hides says connections to endpoints are this process's own.
	hides bool
	// again says a connection to an endpoint is looked at like anybody's, the process's or
	// a socket's that was led there.
	again bool
	// robbed are the Services with an endpoint at a frontend, where that takes it from them.
	robbed map[frontKey][]*model.Service
	pods   []*model.Pod
	podIn  []netip.Prefix // where Pods have their addresses, as far as is known
}

func newGuard(snap *model.Snapshot, p *Plan) guard {
	traits := p.Config.Mode.Traits()
	g := guard{apiServers: apiServers(snap, p.Config), nodes: snap.Nodes, kubelets: map[uint16]bool{},
		binds: traits.BindsVIPs, local: p.isLocal, hides: traits.HidesSource,
		again: traits.HidesSource || traits.SocketLevel, pods: snap.Pods}
	for _, n := range snap.Nodes {
		if n.KubeletPort != 0 {
			g.kubelets[n.KubeletPort] = true
		}
	}
	if g.binds || g.again {
		g.robbed = p.robbed(g.binds)
		for _, n := range snap.Nodes {
			g.podIn = append(g.podIn, n.PodCIDRs...)
		}
	}
	if g.again {
		g.podIn = append(g.podIn, p.Config.Detector.CIDRs...)
	}
	return g
}

// apiServers are where API servers are reached, and whether one runs there itself.
func apiServers(snap *model.Snapshot, cfg Config) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	for _, a := range cfg.APIServers {
		out[a] = false
	}
	if svc := snap.Service(model.Name{Namespace: "default", Name: "kubernetes"}); svc != nil {
		for _, e := range svc.Endpoints {
			for _, p := range e.Ports {
				out[netip.AddrPortFrom(e.Addr, p.Port)] = true
			}
		}
	}
	return out
}

// equal tells whether o refuses the same. What lives where may change any time when VIPs
// become addresses, and where a frontend is an endpoint, so that is always asked anew.
func (g guard) equal(o guard) bool {
	return !g.binds && !o.binds && g.hides == o.hides && g.again == o.again && len(g.robbed) == 0 && len(o.robbed) == 0 &&
		maps.Equal(g.apiServers, o.apiServers) && maps.Equal(g.kubelets, o.kubelets) && slices.Equal(g.nodes, o.nodes)
}

const cutsOff = "; serving it here would cut the node off"

// refuses says what is against sp having k, else "".
func (g guard) refuses(k frontKey, sp *ServicePort) string {
	if k.addr == sp.ClusterIP || k.addr.IsUnspecified() {
		return ""
	}
	if g.binds && !g.local(k.addr) {
		if whose := g.livesAt(k, sp); whose != "" {
			return whose
		}
	}
	if k.proto == packet.TCP {
		if whose := g.vital(k, sp); whose != "" {
			return whose + cutsOff
		}
	}
	return g.robs(k, sp)
}

// vital says whose k is of those a node cannot do without.
func (g guard) vital(k frontKey, sp *ServicePort) string {
	if _, ok := g.apiServers[k.addrPort()]; ok && !g.leadsThere(k, sp) {
		return "the API server's own address"
	}
	if !g.kubelets[k.port] {
		return ""
	}
	for _, n := range g.nodes {
		if n.KubeletPort == k.port && nodeHas(n, k.addr) {
			return "the kubelet of node " + n.Name
		}
	}
	return ""
}

// livesAt says who has an address of its own that this node, were it bound here, could
// no longer reach at all: no port of it but those of Services.
func (g guard) livesAt(k frontKey, sp *ServicePort) string {
	for s := range g.apiServers {
		served := k.proto == packet.TCP && k.port == s.Port() && g.leadsThere(k, sp)
		if s.Addr() == k.addr && !served {
			return "the API server's own address" + cutsOff
		}
	}
	const binds = ", and this mode binds all addresses it serves"
	for _, n := range g.nodes {
		if nodeHas(n, k.addr) {
			return "an address of node " + n.Name + binds + cutsOff
		}
	}
	if g.isPod(k.addr) {
		return "an address of Pods" + binds + "; serving it here would cut the Pod off"
	}
	return ""
}

// leadsThere tells whether an API server answers whoever asks at k, by whatever list: a
// balancer in front of them is a Service like any other. An empty list refuses or drops,
// and source ranges keep some out. What leads to itself ends at the node where VIPs are
// bound, and hangs on this process, which needs it to start, where connections are its own.
func (g guard) leadsThere(k frontKey, sp *ServicePort) bool {
	if sp.Restricted && slices.Contains(sp.LoadBalancerIPs, k.addr) {
		return false
	}
	lists := [][]Endpoint{sp.Cluster, sp.FromOutside()}
	for _, list := range lists {
		if len(list) == 0 || slices.ContainsFunc(list, func(e Endpoint) bool { return !g.isAPIServer(e.Addr) }) {
			return false
		}
		if itself := func(e Endpoint) bool { return e.Addr == k.addrPort() }; (g.binds || g.hides) && slices.ContainsFunc(list, itself) {
			return false
		}
	}
	return !g.apiServers[k.addrPort()] || !g.binds && !g.hides
}

func (g guard) isAPIServer(a netip.AddrPort) bool {
	_, ok := g.apiServers[a]
	return ok
}

// isPod tells whether a, as the nodes and the Pods themselves say, is a Pod's address.
// What slices say does not count: anybody may write one.
func (g guard) isPod(a netip.Addr) bool {
	return slices.ContainsFunc(g.podIn, func(c netip.Prefix) bool { return c.Contains(a) }) ||
		slices.ContainsFunc(g.pods, func(p *model.Pod) bool { return !p.HostNetwork && slices.Contains(p.IPs, a) })
}

func nodeHas(n *model.Node, a netip.Addr) bool {
	return slices.Contains(n.InternalIPs, a) || slices.Contains(n.ExternalIPs, a)
}
