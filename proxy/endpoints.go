package proxy

import (
	"net/netip"
	"slices"

	"fairway/model"
)

// choose fills the lists of a ServicePort from the Service's endpoints of its family
// (KEP-1669 terminating fall-back, KEP-2086 internal policy, KEP-3015 and KEP-4444
// topology).
func (p *Plan) choose(sp *ServicePort, svc *model.Service) {
	var cand []*model.Endpoint
	for _, e := range svc.Endpoints {
		if !e.Unproxied && e.Addr.Is6() == sp.IPv6 && e.PortFor(sp.PortName, sp.Proto) != 0 {
			cand = append(cand, e)
		}
	}
	ready := filter(cand, func(e *model.Endpoint) bool { return e.Ready })
	fallback := filter(cand, func(e *model.Endpoint) bool { return e.Serving && e.Terminating })
	sp.HasEndpoints = len(ready)+len(fallback) > 0
	if !sp.InternalLocal || sp.External() {
		list := filter(ready, p.topology(ready))
		if len(list) == 0 {
			list = fallback
		}
		sp.Cluster = p.endpoints(list, sp)
	}
	if sp.InternalLocal || (sp.ExternalLocal && sp.External()) {
		local := func(e *model.Endpoint) bool { return e.Node == p.Config.Node && e.Node != "" }
		list := filter(ready, local)
		if len(list) == 0 {
			list = filter(fallback, local)
		}
		sp.Local = p.endpoints(list, sp)
	}
}

func filter(in []*model.Endpoint, keep func(*model.Endpoint) bool) []*model.Endpoint {
	var out []*model.Endpoint
	for _, e := range in {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// topology is all-or-nothing over the ready endpoints: every one must carry a hint and
// one at least must name this node (or zone), else everything is used.
func (p *Plan) topology(ready []*model.Endpoint) func(*model.Endpoint) bool {
	node := func(e *model.Endpoint) bool { return slices.Contains(e.HintNodes, p.Config.Node) }
	zone := func(e *model.Endpoint) bool { return slices.Contains(e.HintZones, p.zone) }
	all := func(has func(*model.Endpoint) bool) bool {
		return !slices.ContainsFunc(ready, func(e *model.Endpoint) bool { return !has(e) })
	}
	if p.Config.Node != "" && slices.ContainsFunc(ready, node) && all(func(e *model.Endpoint) bool { return len(e.HintNodes) > 0 }) {
		return node
	}
	if p.zone != "" && slices.ContainsFunc(ready, zone) && all(func(e *model.Endpoint) bool { return len(e.HintZones) > 0 }) {
		return zone
	}
	return func(*model.Endpoint) bool { return true }
}

func (p *Plan) endpoints(in []*model.Endpoint, sp *ServicePort) []Endpoint {
	out := make([]Endpoint, 0, len(in))
	for _, e := range in {
		out = append(out, Endpoint{
			Addr:   netip.AddrPortFrom(e.Addr, e.PortFor(sp.PortName, sp.Proto)),
			OnNode: e.Node == p.Config.Node && e.Node != "", Pod: e.Pod,
		})
	}
	slices.SortStableFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.Addr == b.Addr })
}
