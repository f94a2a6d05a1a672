package ipvs

import (
	"maps"
	"slices"
	"strings"
)

// Removal takes everything of ours, and of a kube-proxy in IPVS mode, out of what is
// listed: virtual services, addresses, rules, sets. The device is the caller's to
// remove.
func Removal(have *State) *Change {
	rules := maps.Clone(have.Rules)
	for at, list := range have.Leftovers {
		rules[at] = slices.Concat(rules[at], list)
	}
	c := &Change{V6: have.V6, Rules: restore(rules, nil), UnbindAddrs: sortedAddrs(have.Addrs)}
	for key := range have.Services {
		if have.owns(key, markPrefix<<24, 0xff<<24) {
			c.Removals = append(c.Removals, Op{Verb: DeleteService, Key: key})
		}
	}
	var after setLines
	for s := range setCount {
		if _, there := have.Sets[s.Name(have.V6)]; there {
			after.line("destroy", s.Name(have.V6))
		}
	}
	c.SetsAfter = string(after.b)
	c.arrange()
	return c
}

// Drift lists in which lines what the kernel lists differs from want, in the words of
// the tools; destinations that drain do not count.
func Drift(have *State, want *Program, draining Draining) []string {
	c := DiffState(have, want, draining)
	var out []string
	text := func(tool, lines string) {
		for _, l := range strings.Split(lines, "\n") {
			if l != "" && l != "COMMIT" {
				out = append(out, tool+" "+l)
			}
		}
	}
	text("ipset", c.SetsBefore)
	text("iptables", c.Rules)
	for _, o := range slices.Concat(c.Services, c.Removals) {
		out = append(out, "ipvsadm "+o.Text())
	}
	for _, a := range c.BindAddrs {
		out = append(out, "ip addr add "+host(a).String()+" dev "+Device)
	}
	for _, a := range c.UnbindAddrs {
		out = append(out, "ip addr del "+host(a).String()+" dev "+Device)
	}
	text("ipset", c.SetsAfter)
	return out
}
