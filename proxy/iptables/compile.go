package iptables

import (
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/proxy"
)

// Options is what the node's kernel has, as found by the hand that runs the commands.
type Options struct {
	// Liberal says nf_conntrack_tcp_be_liberal is set: no rule drops INVALID packets.
	Liberal bool
	// Counters says the nfacct objects of kube-proxy's two metrics exist.
	Counters bool
}

// Names of the nfacct objects, those of kube-proxy.
const (
	CounterInvalid   = "ct_state_invalid_dropped_pkts"
	CounterLocalhost = "localhost_nps_accepted_pkts"
)

// largeCluster is the number of endpoints above which the chains of Services carry no
// comments (kube-proxy's threshold).
const largeCluster = 1000

// Program is the rules of both families. A compiled Program holds one part per
// ServicePort and writes rules out when asked; a parsed one holds them as listed.
type Program struct {
	families [2]family // IPv4, IPv6
}

type family struct {
	set   settings
	parts []*part
	// listed is set for a parsed Program only.
	listed []Table
}

// part is what a ServicePort compiles to. Its pointer stays the same while the
// ServicePort's does, which is how Diff finds changes.
type part struct {
	port   *proxy.ServicePort
	name   string // in comments
	hash   string
	health uint16 // healthCheckNodePort to let in, 0 for none
}

// settings is what the node's configuration says about every rule of a family.
type settings struct {
	v6            bool
	mark          uint32
	masqueradeAll bool
	// pod matches a local pod's packets by Src or In; zero when nothing can tell.
	pod     Rule
	podKnow bool
	// localhost lets NodePorts answer on IPv4 loopback.
	localhost bool
	// nodePorts holds one match for each address NodePorts answer on.
	nodePorts []Rule
	nodeIPs   []netip.Addr
	large     bool
	opts      Options
}

// Compile makes the Program of a Plan. Parts of ServicePorts that prev (nil at first)
// compiled already are taken over.
func Compile(prev *Program, plan *proxy.Plan, opts Options) *Program {
	p := &Program{}
	health := make(map[model.Name]uint16, len(plan.Health))
	for _, h := range plan.Health {
		health[h.Service] = h.Port
	}
	for i := range p.families {
		f := &p.families[i]
		kept := map[*proxy.ServicePort]*part{}
		if prev != nil {
			for _, old := range prev.families[i].parts {
				kept[old.port] = old
			}
		}
		endpoints := 0
		for _, sp := range plan.Ports {
			if sp.IPv6 != (i == 1) {
				continue
			}
			one := kept[sp]
			if one == nil || one.health != health[sp.Service] {
				one = &part{port: sp, name: cut(clean(sp.Key.String())), hash: portHash(sp.Key), health: health[sp.Service]}
			}
			f.parts = append(f.parts, one)
			endpoints += max(len(sp.Cluster), len(sp.Local))
		}
		f.set = newSettings(plan, i == 1, opts)
		f.set.large = endpoints > largeCluster
	}
	return p
}

// Keeping is the Program with what good (nil is nothing) has for the ServicePorts that
// refused names; kept tells for which. One whose address or port another has now is left
// out.
func (p *Program) Keeping(good *Program, refused func(*proxy.ServicePort) bool) (out *Program, kept map[*proxy.ServicePort]bool) {
	out, kept = &Program{families: p.families}, map[*proxy.ServicePort]bool{}
	for i := range out.families {
		f := &out.families[i]
		parts := make([]*part, 0, len(f.parts))
		var bad []*part
		claimed := map[Rule]bool{}
		for _, one := range f.parts {
			if refused(one.port) {
				bad = append(bad, one)
				continue
			}
			parts = append(parts, one)
		}
		if len(bad) > 0 {
			for _, one := range parts {
				f.set.claims(one, func(r Rule) { claimed[r] = true })
			}
		}
		for _, one := range bad {
			if old := good.part(i, one.port.Key); old != nil && !refused(old.port) && !f.set.anyClaimed(old, claimed) {
				parts, kept[one.port] = append(parts, old), true
			}
		}
		f.parts = parts
	}
	return out, kept
}

// part finds what a ServicePort compiled to.
func (p *Program) part(family int, k proxy.Key) *part {
	if p == nil {
		return nil
	}
	for _, one := range p.families[family].parts {
		if one.port.Key == k {
			return one
		}
	}
	return nil
}

// claims visits what packets the rules of a part in shared chains match.
func (s settings) claims(p *part, visit func(Rule)) {
	for _, rules := range s.front(p) {
		for _, r := range rules {
			visit(Rule{Proto: r.Proto, Dst: r.Dst, DPort: r.DPort})
		}
	}
}

func (s settings) anyClaimed(p *part, claimed map[Rule]bool) bool {
	found := false
	s.claims(p, func(r Rule) { found = found || claimed[r] })
	return found
}

func (p *Program) family(v6 bool) *family {
	if v6 {
		return &p.families[1]
	}
	return &p.families[0]
}

// Localhost tells whether NodePorts answer on IPv4 loopback, for which the kernel
// needs route_localnet.
func (p *Program) Localhost() bool { return p.families[0].set.localhost }

// longestInterface is the length of the longest interface name (IFNAMSIZ less one); a
// prefix of that length is a name.
const longestInterface = 15

func newSettings(plan *proxy.Plan, v6 bool, opts Options) settings {
	cfg := plan.Config
	s := settings{
		v6: v6, mark: 1 << cfg.MasqueradeBit, masqueradeAll: cfg.MasqueradeAll,
		nodeIPs: cfg.NodeIPs, opts: opts,
	}
	s.localhost = !v6 && cfg.LocalhostNodePorts && plan.NodePortOn(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	s.podKnow = cfg.Detector.Implemented(v6)
	if s.podKnow {
		if c, ok := cfg.Detector.CIDR(v6); ok {
			s.pod.Src.Prefix = c
		} else if cfg.Detector.Mode == proxy.DetectBridgeInterface {
			s.pod.In.Name = cfg.Detector.Interface
		} else {
			s.pod.In.Name = cfg.Detector.Interface
			if len(s.pod.In.Name) < longestInterface {
				s.pod.In.Name += "+"
			}
		}
	}
	s.nodePorts = nodePortMatches(plan, v6, s.localhost)
	return s
}

func loopback(v6 bool) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}

// nodePortMatches lists the destinations of NodePorts: every local address (less
// loopback where it is not to answer), or one match for each address that
// nodePortAddresses selects.
func nodePortMatches(plan *proxy.Plan, v6, localhost bool) []Rule {
	lo := loopback(v6)
	all := Rule{DstLocal: true}
	if !localhost {
		all.Dst = Net{Prefix: lo, Not: true}
	}
	sel := plan.Config.NodePortAddresses
	cidrs := slices.DeleteFunc(slices.Clone(sel.CIDRs), func(c netip.Prefix) bool { return c.Addr().Is6() != v6 })
	if !sel.Primary && (len(cidrs) == 0 || slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return c.Bits() == 0 })) {
		return []Rule{all}
	}
	var out []Rule
	add := func(p netip.Prefix) {
		r := Rule{Dst: Net{Prefix: p.Masked()}}
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, a := range slices.Concat(plan.Config.NodeIPs, plan.Config.LocalAddrs) {
		if a.Is6() == v6 && !lo.Contains(a) && plan.NodePortOn(a) {
			add(netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for _, c := range cidrs {
		if localhost && !sel.Primary && c.Overlaps(lo) {
			if c.Bits() < lo.Bits() {
				c = lo
			}
			add(c)
		}
	}
	return out
}
