package lb

import (
	"fmt"
	"net/netip"
	"strings"

	"fairway/model"
	"fairway/packet"
)

// Trace says of an address: which Services hold it, of which pool it is, which
// advertisements cover it, which node should answer and why every other one does not.
// node is the asking node; empty leaves out the line about it.
func Trace(snap *model.Snapshot, cfg Config, live map[string]bool, node string, addr netip.Addr) []packet.Step {
	f := newField(snap, cfg, live)
	an := Announcement{Addr: addr, Services: f.holders[addr], Pool: f.pools.of(addr)}
	var out []packet.Step
	say := func(where, format string, args ...any) {
		out = append(out, packet.Step{Where: where, What: fmt.Sprintf(format, args...)})
	}
	if an.Pool == nil {
		say("pool", "%s is in no IPAddressPool", addr)
	} else {
		say("pool", "%s is of IPAddressPool %s", addr, an.Pool.Name)
	}
	if len(an.Services) == 0 {
		say("status", "no Service of type LoadBalancer holds %s: nobody announces it", addr)
		return out
	}
	for _, s := range an.Services {
		say("status", "held by Service %s%s", s.Name, policyText(s))
	}
	ads, _ := f.advertisements(an)
	for _, ad := range ads {
		say("L2Advertisement", "%s announces it%s", ad.Name, adText(ad))
	}
	owner, whys := Owner(addr, f.candidates(an))
	for _, w := range whys {
		say("node "+w.Node, "%s", w.Reason)
	}
	switch {
	case owner == "":
		say("owner", "nobody should answer for %s", addr)
	case node == "" || node == owner:
		say("owner", "node %s should answer for %s", owner, addr)
	default:
		say("owner", "node %s should answer for %s, not this node (%s)", owner, addr, node)
	}
	return out
}

func policyText(s *model.Service) string {
	if s.ExternalLocal {
		return ", externalTrafficPolicy Local: only nodes with an endpoint"
	}
	return ""
}

func adText(ad *model.L2Advertisement) string {
	if len(ad.Interfaces) == 0 {
		return ""
	}
	return " on interfaces " + strings.Join(ad.Interfaces, ", ")
}
