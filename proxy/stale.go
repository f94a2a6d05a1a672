package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/packet"
)

// Flow names UDP flows that conntrack must forget: those first sent to Dst whose
// answers come from none of Keep. Such a flow would go on to an endpoint that is gone,
// or to nowhere if it began before there was an endpoint. An unspecified address in
// Dst stands for every address of the node (a NodePort). Instead of Dst, Within is a range
// of cluster addresses: a flow there that was led to an endpoint is one to forget when no
// Flow of the list has its destination.
type Flow struct {
	Dst    netip.AddrPort
	Within netip.Prefix
	Keep   []netip.AddrPort
}

// StaleFlows compares two Plans (old is nil at start) and returns the UDP flows to
// forget, in address order; at start also those of Services that went while nobody
// looked, as far as the cluster's address ranges are known. Endpoints that still serve keep their flows whatever
// readiness, topology and traffic policies say now. TCP is left alone on purpose: a
// client of a dying endpoint is told by it, and a reset would cut its last answer off.
func StaleFlows(old, new *Plan) []Flow {
	before, after := serving(old, new), serving(new, old)
	var out []Flow
	for dst, was := range before {
		now, still := after[dst]
		if !still { // gone, or another Service's by now
			out = append(out, Flow{Dst: dst, Keep: new.servingAt(dst)})
			continue
		}
		gone := func(a netip.AddrPort) bool { return !slices.Contains(now, a) }
		// From none to some: flows begun in between were sent on unchanged.
		if slices.ContainsFunc(was, gone) || len(was) == 0 && len(now) > 0 {
			out = append(out, Flow{Dst: dst, Keep: now})
		}
	}
	for dst, now := range after {
		if _, there := before[dst]; !there && (len(now) > 0 || old == nil) {
			out = append(out, Flow{Dst: dst, Keep: now})
		}
	}
	slices.SortFunc(out, func(a, b Flow) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Port(), b.Dst.Port()))
	})
	if old == nil {
		for _, c := range new.Config.ServiceCIDRs {
			out = append(out, Flow{Within: c})
		}
	}
	return out
}

// serving maps the UDP frontends of p's Services that are not the same in other to
// their serving endpoints.
func serving(p, other *Plan) map[netip.AddrPort][]netip.AddrPort {
	out := map[netip.AddrPort][]netip.AddrPort{}
	if p == nil {
		return out
	}
	changed := p.services
	if other != nil {
		changed, _ = model.Changed(p.services, other.services)
	}
	for _, svc := range changed {
		if other != nil && other.serves(svc) {
			continue
		}
		for _, sp := range p.portsOf(svc.Name) {
			if sp.Proto != packet.UDP {
				continue
			}
			list := servingEndpoints(svc, sp)
			for _, k := range sp.frontends() {
				if held := p.at(k); held != nil && held.Key == sp.Key { // else an older Service has it
					out[netip.AddrPortFrom(k.addr, k.port)] = list
				}
			}
		}
	}
	return out
}

func servingEndpoints(svc *model.Service, sp *ServicePort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range svc.Endpoints {
		if port := e.PortFor(sp.PortName, sp.Proto); port != 0 && e.Serving && e.Addr.Is6() == sp.IPv6 {
			out = append(out, netip.AddrPortFrom(e.Addr, port))
		}
	}
	return out
}

// servingAt is the serving endpoints of whichever Service holds a UDP frontend.
func (p *Plan) servingAt(dst netip.AddrPort) []netip.AddrPort {
	sp := p.at(frontKey{dst.Addr(), dst.Port(), packet.UDP})
	if sp == nil {
		return nil
	}
	if i, ok := p.find(sp.Service); ok {
		return servingEndpoints(p.services[i], sp)
	}
	return nil
}

// serves tells whether this very Service is among p's.
func (p *Plan) serves(svc *model.Service) bool {
	i, ok := p.find(svc.Name)
	return ok && p.services[i] == svc
}
