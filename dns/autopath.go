package dns

import (
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// AutoPath is what a resolver would ask next, in order, had it been told that the name of
// q does not exist: for the first name of the search list of the Pod at client, the rest
// of the list kubelet writes under the DNS policy ClusterFirst, and the name as it was
// typed. It is nil for every other name, and where it is not certain who asks: an address
// of no Pod, of two, of the node, or of a Pod with a search list of its own.
func (z *Zone) AutoPath(q Question, client netip.Addr) []string {
	if !z.cfg.AutoPath || q.Type != TypeA && q.Type != TypeAAAA {
		return nil
	}
	p := z.podAsking(client)
	if p == nil {
		return nil
	}
	name := canonical(q.Name)
	typed, first := strings.CutSuffix(name, "."+p.Name.Namespace+".svc."+z.cfg.Domain)
	if !first || typed == "" {
		return nil
	}
	search := z.Search(p.Name.Namespace, z.cfg.HostSearch...)
	var out []string
	for _, s := range search[1:] {
		out = append(out, typed+"."+s)
	}
	return append(out, typed+".")
}

// AutoPaths tells whether AutoPath is in force at all.
func (z *Zone) AutoPaths() bool { return z.cfg.AutoPath }

// podAsking is the Pod that alone has an address and the search list kubelet writes.
func (z *Zone) podAsking(a netip.Addr) *model.Pod {
	names := z.podsByIP[a]
	if len(names) != 1 {
		return nil
	}
	i, found := slices.BinarySearchFunc(z.pods, names[0], func(p *model.Pod, n model.Name) int { return p.Name.Compare(n) })
	if !found {
		return nil
	}
	if p := z.pods[i]; !p.HostNetwork && len(p.Searches) == 0 && p.NDots == 0 && (p.DNSPolicy == "" || p.DNSPolicy == "ClusterFirst") {
		return p
	}
	return nil
}
