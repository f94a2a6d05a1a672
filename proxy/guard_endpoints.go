package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/packet"
)

// robbed finds the Services that have an endpoint, ready or not, where some Service has an
// external frontend: what is on its way there would be led to that Service instead. whole
// says it would at any port of the address; keys have the address alone then.
func (p *Plan) robbed(whole bool) map[frontKey][]*model.Service {
	fronts := map[netip.Addr]bool{}
	for _, sp := range p.Ports {
		for _, a := range sp.ExternalIPs {
			fronts[a] = true
		}
		for _, a := range sp.LoadBalancerIPs {
			fronts[a] = true
		}
	}
	if len(fronts) == 0 {
		return nil
	}
	out := map[frontKey][]*model.Service{}
	for i, svc := range p.services {
		if len(p.ports[i]) == 0 {
			continue
		}
		for _, e := range svc.Endpoints {
			switch {
			case e.Unproxied || !fronts[e.Addr]:
			case whole:
				noteRobbed(out, svc, frontKey{addr: e.Addr})
			default:
				noteRobbedAt(out, svc, e)
			}
		}
	}
	return out
}

func noteRobbedAt(out map[frontKey][]*model.Service, svc *model.Service, e *model.Endpoint) {
	for _, port := range svc.Ports {
		if n := e.PortFor(port.Name, port.Protocol); n != 0 {
			noteRobbed(out, svc, frontKey{e.Addr, n, port.Protocol})
		}
	}
}

func noteRobbed(out map[frontKey][]*model.Service, svc *model.Service, k frontKey) {
	if !slices.Contains(out[k], svc) {
		out[k] = append(out[k], svc)
	}
}

// robs says whose endpoint k is that sp must not come between. Anybody who may write a
// Service may write externalIPs; endpoints are the control plane's to write unless somebody
// is allowed to (CVE-2021-25740), so the claim loses. An address the cluster gave out as a
// load balancer's stands against another namespace's slice, but where a Pod has it.
func (g guard) robs(k frontKey, sp *ServicePort) string {
	at := k
	switch {
	case g.binds && g.local(k.addr):
		return "" // no more than it is
	case g.binds:
		at = frontKey{addr: k.addr}
	case k.proto == packet.SCTP: // the kernel's alone: no connection of this process, no socket led
		return ""
	}
	given := slices.Contains(sp.LoadBalancerIPs, k.addr) && !g.isPod(k.addr)
	for _, svc := range g.robbed[at] {
		if svc.Name == sp.Service && !g.binds && !g.hides {
			continue // it stays within the Service
		}
		if !given || svc.Name.Namespace == sp.Service.Namespace {
			return fmt.Sprintf("an endpoint of Service %s; serving it here would take that Service's own traffic", svc.Name)
		}
	}
	return ""
}
