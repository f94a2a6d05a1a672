package proxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
	"fairway/packet"
)

// Frontends lists every claim a ServicePort makes, for texts and conflict checks.
func (p *ServicePort) frontends() []frontKey {
	out := []frontKey{{p.ClusterIP, p.Port, p.Proto}}
	for _, a := range p.ExternalIPs {
		out = append(out, frontKey{a, p.Port, p.Proto})
	}
	for _, a := range p.LoadBalancerIPs {
		out = append(out, frontKey{a, p.Port, p.Proto})
	}
	if p.NodePort != 0 {
		out = append(out, frontKey{anyAddr(p.IPv6), p.NodePort, p.Proto})
	}
	return out
}

type frontKey struct {
	addr  netip.Addr // unspecified for a NodePort
	port  uint16
	proto packet.Protocol
}

func (k frontKey) String() string {
	if k.addr.IsUnspecified() {
		return fmt.Sprintf("nodePort %d/%s", k.port, k.proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.addr, k.port), k.proto)
}

func (k frontKey) addrPort() netip.AddrPort { return netip.AddrPortFrom(k.addr, k.port) }

func anyAddr(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// claims say who has which frontend.
type claims struct {
	guard   guard
	index   map[frontKey]int // in holders
	holders []*ServicePort   // the Plan's ports, those too that have no frontend left
	vips    map[netip.Addr]bool
	lost    bool // some ServicePort does not have all it claims
}

// at is who has a frontend, nil when nobody does.
func (c *claims) at(k frontKey) *ServicePort {
	if i, ok := c.index[k]; ok {
		return c.holders[i]
	}
	return nil
}

// claim maps frontends to ServicePorts, as old has it when nothing that counts for that
// has changed: mostly endpoints come and go. Where two Services claim one frontend the
// one whose cluster address it is keeps it, else the older (the API server allows one
// only, files and hand-set addresses allow more), and the other is told; its other
// frontends work on. What the guard refuses nobody gets.
func (p *Plan) claim(old *Plan, g guard) []model.Problem {
	p.claims = claims{guard: g, holders: p.Ports}
	if p.claimsAs(old) {
		p.index, p.vips = old.index, old.vips
		return nil
	}
	p.index = make(map[frontKey]int, len(p.Ports)+len(p.Ports)/2)
	p.vips = make(map[netip.Addr]bool, len(p.Ports))
	losses := losses{}
	for i, sp := range p.Ports {
		p.vips[sp.ClusterIP] = true
		for _, k := range sp.frontends() {
			if why := g.refuses(k, sp); why != "" {
				losses.note(sp, k, why)
				continue
			}
			holder := p.at(k)
			switch {
			case holder == nil:
				p.index[k] = i
			case holder == sp: // an externalIP that is also the load balancer's address
			case sp.beats(holder, k):
				p.index[k] = i
				losses.note(holder, k, "")
			default:
				losses.note(sp, k, "")
			}
		}
	}
	problems := p.settle(losses)
	if p.Config.Mode.Traits().BindsVIPs {
		p.bindVIPs()
	}
	return problems
}

// bindVIPs counts external addresses that are not the node's anyway among the VIPs.
func (p *Plan) bindVIPs() {
	for _, sp := range p.Ports {
		for _, a := range slices.Concat(sp.ExternalIPs, sp.LoadBalancerIPs) {
			if !p.isLocal(a) {
				p.vips[a] = true
			}
		}
	}
}

// claimsAs tells whether each of p's ServicePorts gets what its forerunner in old got.
// One reached from outside is looked at anew when it changes: the guard knows endpoints.
func (p *Plan) claimsAs(old *Plan) bool {
	return old.index != nil && !old.lost && old.guard.equal(p.guard) &&
		slices.EqualFunc(p.Ports, old.Ports, func(a, b *ServicePort) bool {
			return a == b || a.Key == b.Key && a.ClusterIP == b.ClusterIP && a.Port == b.Port && !a.External() && !b.External()
		})
}

// losses are the frontends ServicePorts do not get: why not, or "" when another has it.
type losses map[*ServicePort]map[frontKey]string

func (l losses) note(loser *ServicePort, k frontKey, why string) {
	if l[loser] == nil {
		l[loser] = map[frontKey]string{}
	}
	l[loser][k] = why
}

// beats tells whether p gets k rather than o: who writes another Service's cluster
// address, even one given out later, into externalIPs must not get its traffic.
func (p *ServicePort) beats(o *ServicePort, k frontKey) bool {
	if mine, its := p.ClusterIP == k.addr, o.ClusterIP == k.addr; mine != its {
		return mine
	}
	return p.older(o)
}

func (p *ServicePort) older(o *ServicePort) bool {
	if !p.created.Equal(o.created) {
		return p.created.Before(o.created)
	}
	return p.Key.compare(o.Key) < 0
}

// settle takes lost frontends away from copies of their losers and reports them.
func (p *Plan) settle(losses losses) []model.Problem {
	if len(losses) == 0 {
		return nil
	}
	p.lost = true
	var problems []model.Problem
	for i, sp := range p.holders {
		lost := losses[sp]
		if lost == nil {
			continue
		}
		cut := *sp
		for _, k := range slices.SortedFunc(maps.Keys(lost), func(a, b frontKey) int { return strings.Compare(a.String(), b.String()) }) {
			cut.drop(k)
			problems = append(problems, p.loss(sp, k, lost[k]))
		}
		p.holders[i] = &cut
	}
	p.Ports = slices.DeleteFunc(slices.Clone(p.holders), func(sp *ServicePort) bool { return !sp.ClusterIP.IsValid() && !sp.External() })
	return problems
}

func (p *Plan) loss(sp *ServicePort, k frontKey, why string) model.Problem {
	if why != "" {
		return model.Problem{Object: sp.Ref(), Field: "spec.ports", Reason: "FrontendReserved",
			Message: fmt.Sprintf("%s is %s, so it is left out: choose another address or port", k, why)}
	}
	holder := p.at(k)
	title := "which is older"
	if holder.ClusterIP == k.addr {
		title = "whose clusterIP it is"
	}
	return model.Problem{Object: sp.Ref(), Field: "spec.ports", Reason: "FrontendConflict",
		Message: fmt.Sprintf("%s is already served for Service %s, %s; choose another", k, holder.Service, title)}
}

// drop removes one frontend; a ServicePort without cluster address has an invalid
// ClusterIP.
func (p *ServicePort) drop(k frontKey) {
	is := func(a netip.Addr) bool { return a == k.addr }
	switch {
	case k.addr.IsUnspecified():
		p.NodePort = 0
	case p.ClusterIP == k.addr:
		p.ClusterIP = netip.Addr{}
	}
	p.ExternalIPs = slices.DeleteFunc(slices.Clone(p.ExternalIPs), is)
	p.LoadBalancerIPs = slices.DeleteFunc(slices.Clone(p.LoadBalancerIPs), is)
}
