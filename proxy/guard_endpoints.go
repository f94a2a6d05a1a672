package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/packet"
)

// robbed finds the Services that have an endpoint, ready or not, where some Service has an
// external frontend: what is on its way there would be led to that Service instead.
func (p *Plan) robbed() map[frontKey][]*model.Service {
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
			if !e.Unproxied && fronts[e.Addr] {
				noteRobbed(out, svc, e)
			}
		}
	}
	return out
}

func noteRobbed(out map[frontKey][]*model.Service, svc *model.Service, e *model.Endpoint) {
	for _, port := range svc.Ports {
		k := frontKey{e.Addr, e.PortFor(port.Name, port.Protocol), port.Protocol}
		if k.port != 0 && !slices.Contains(out[k], svc) {
			out[k] = append(out[k], svc)
		}
	}
}

// robs says whose endpoint k is that sp must not come between. Anybody who may write a
// Service may write externalIPs; endpoints are the control plane's to write unless somebody
// is allowed to (CVE-2021-25740), so the claim loses. An address the cluster gave out as a
// load balancer's stands against another namespace's slice, but where a Pod has it.
func (g guard) robs(k frontKey, sp *ServicePort) string {
	if k.proto == packet.SCTP { // the kernel's alone: no connection of this process, no socket led
		return ""
	}
	given := slices.Contains(sp.LoadBalancerIPs, k.addr) && !g.isPod(k.addr)
	for _, svc := range g.robbed[k] {
		if !given || svc.Name.Namespace == sp.Service.Namespace {
			return fmt.Sprintf("an endpoint of Service %s; serving it here would take that Service's own traffic", svc.Name)
		}
	}
	return ""
}
