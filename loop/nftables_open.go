package loop

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
)

// OpenNFTables makes the backend for a network namespace (a descriptor, 0 for the
// current one) after asking the kernel for every feature it needs. IPv6 alone may be
// missing: then its Services are left out, with a Problem on the node.
func OpenNFTables(netns int, node string) (*NFTables, []model.Problem, error) {
	hand := kernel.NewNFTables(netns)
	if err := kernel.ProbeError(false, hand.Probe(false)); err != nil {
		return nil, nil, err
	}
	b := NewNFTables(hand)
	b.CountFlows(hand.ProbeCounters(false) == nil)
	missing := hand.Probe(true)
	if len(missing) == 0 {
		return b, nil, nil
	}
	b.noV6 = true
	return b, []model.Problem{nodeProblem(node, "FamilyNotServed", fmt.Sprintf("no Service rules for %v", kernel.ProbeError(true, missing)))}, nil
}

// withoutV6 is a plan of the IPv4 part only.
func withoutV6(p *proxy.Plan) *proxy.Plan {
	out := *p
	out.Ports = slices.DeleteFunc(slices.Clone(p.Ports), func(sp *proxy.ServicePort) bool { return sp.IPv6 })
	out.Config.ServiceCIDRs = slices.DeleteFunc(slices.Clone(p.Config.ServiceCIDRs), func(c netip.Prefix) bool { return c.Addr().Is6() })
	return &out
}
