package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/nftables"
)

// Carry is what the process found out: it goes into the next Compile.
type Carry struct {
	// Ports are those of Inner listeners that are open, by name.
	Ports map[string]uint16
	// Failed are the listeners that could not be opened, by name.
	Failed map[string]bool
}

// part is what one ServicePort became.
type part struct {
	from      *proxy.ServicePort
	circular  []netip.AddrPort // endpoints left out
	names     [2]string        // of the inner listeners for Cluster and Local
	ports     [2]uint16        // theirs; 0 is none
	failed    bool
	listeners []*Listener
	refused   front // a NodePort of loopback without endpoints
	captured  *proxy.ServicePort
}

// Compile turns a Plan into a Program, with rules when capture says the process may write
// them. What it made of the same *proxy.ServicePort in prev (nil at first) is taken over.
func Compile(prev *Program, plan *proxy.Plan, capture bool, carry Carry) *Program {
	if prev == nil {
		prev = &Program{}
	}
	c := &compiler{plan: plan, capture: capture, carry: carry, prev: prev}
	c.inner = [2]netip.Addr{innerAddr(plan, false), innerAddr(plan, true)}
	p := &Program{settings: c.settings(), plan: plan}
	if prev.settings != p.settings {
		prev = &Program{}
	}
	c.sameFronts = prev.sameFronts(plan)
	kept := prev.keeper(len(plan.Ports))
	rules := *plan
	rules.Ports = make([]*proxy.ServicePort, 0, len(plan.Ports))
	for i, sp := range plan.Ports {
		made := c.part(sp, kept(i, sp))
		p.add(made)
		rules.Ports = append(rules.Ports, made.captured)
		if len(made.circular) > 0 {
			p.Problems = append(p.Problems, c.notReached(sp, made.circular))
		}
	}
	if !capture {
		p.Problems = append(p.Problems, c.notCaptured()...)
		return p
	}
	p.Rules = withConfig(&rules)
	p.capture = sync.OnceValue(func() *nftables.Program { return nftables.Compile(nil, p.Rules) })
	return p
}

// keeper finds the part made from a ServicePort among n: at the same place, counted from
// the start or from the end, or by a map that is only made when need be.
func (p *Program) keeper(n int) func(i int, sp *proxy.ServicePort) *part {
	var byPort map[*proxy.ServicePort]*part
	return func(i int, sp *proxy.ServicePort) *part {
		for _, at := range []int{i, i + len(p.parts) - n} {
			if at >= 0 && at < len(p.parts) && p.parts[at].from == sp {
				return p.parts[at]
			}
		}
		if byPort == nil {
			byPort = make(map[*proxy.ServicePort]*part, len(p.parts))
			for _, old := range p.parts {
				byPort[old.from] = old
			}
		}
		return byPort[sp]
	}
}

func (p *Program) add(made *part) {
	p.parts = append(p.parts, made)
	p.Listeners = append(p.Listeners, made.listeners...)
}

// sameFronts tells whether the Services of plan have the addresses and ports they had:
// then an endpoint that was none of them is none now.
func (p *Program) sameFronts(plan *proxy.Plan) bool {
	if p.plan == nil || len(p.parts) != len(plan.Ports) || !slices.Equal(p.plan.Config.LocalAddrs, plan.Config.LocalAddrs) ||
		!slices.Equal(p.plan.Config.NodeIPs, plan.Config.NodeIPs) {
		return false
	}
	for i, sp := range plan.Ports {
		was := p.parts[i].from
		if was != sp && (was.Key != sp.Key || was.ClusterIP != sp.ClusterIP || was.Port != sp.Port || was.NodePort != sp.NodePort ||
			!slices.Equal(was.ExternalIPs, sp.ExternalIPs) || !slices.Equal(was.LoadBalancerIPs, sp.LoadBalancerIPs)) {
			return false
		}
	}
	return true
}

// withConfig makes the plan one of the rules' own mode: they lead to listeners, and
// know nothing of how those choose.
func withConfig(plan *proxy.Plan) *proxy.Plan {
	plan.Config.Mode, plan.Config.Scheduler = proxy.NFTables, ""
	return plan
}

type compiler struct {
	plan    *proxy.Plan
	capture bool
	carry   Carry
	prev    *Program
	inner   [2]netip.Addr // by family: where inner listeners are
	taken   map[front]bool
	held    map[string]uint16 // the ports listeners had in prev
	// sameFronts is Program.sameFronts of the one before.
	sameFronts bool
}

// innerAddr is the address packets are led to: the node's own that its interfaces have,
// else the first that any has. Loopback will not do: the kernel drops what comes from
// elsewhere to it.
func innerAddr(plan *proxy.Plan, v6 bool) netip.Addr {
	cfg := plan.Config
	if len(cfg.LocalAddrs) == 0 {
		return plan.PrimaryIP(v6)
	}
	usable := func(a netip.Addr) bool { return a.Is6() == v6 && a.IsGlobalUnicast() }
	for _, a := range cfg.NodeIPs {
		if usable(a) && slices.Contains(cfg.LocalAddrs, a) {
			return a
		}
	}
	if a := plan.PrimaryIP(v6); a.IsValid() && !slices.ContainsFunc(cfg.LocalAddrs, usable) {
		return a
	}
	for _, a := range cfg.LocalAddrs {
		if usable(a) {
			return a
		}
	}
	return netip.Addr{}
}

func (c *compiler) innerOf(v6 bool) netip.Addr {
	if v6 {
		return c.inner[1]
	}
	return c.inner[0]
}

// settings prints what parts are made from besides ServicePorts.
func (c *compiler) settings() string {
	cfg := c.plan.Config
	s := fmt.Sprint(c.capture, c.inner, cfg.LocalhostNodePorts, cfg.LocalhostRelay, cfg.NodePortAddresses)
	if !c.capture {
		s += fmt.Sprint(cfg.LocalAddrs, cfg.NodeIPs, cfg.Detector)
	}
	return s
}

// The ports of inner listeners are IANA's dynamic ones (RFC 6335 section 6): no server
// has a fixed one among them.
const (
	firstPort = 49152
	portCount = 65536 - firstPort
)

// reserve keeps the ports of listeners that were there before for them.
func (c *compiler) reserve() {
	c.taken, c.held = map[front]bool{}, map[string]uint16{}
	for _, old := range c.prev.parts {
		for i, name := range old.names {
			if name != "" {
				c.held[name] = old.ports[i]
			}
			for _, port := range []uint16{old.ports[i], c.carry.Ports[name]} {
				if port != 0 {
					c.taken[front{netip.AddrPortFrom(c.innerOf(old.from.IPv6), port), old.from.Proto}] = true
				}
			}
		}
	}
}

// port is an inner listener's: the one it has, else one that follows from its name, so
// that it is the same after a restart, else the next that is free. 0 is none.
func (c *compiler) port(sp *proxy.ServicePort, name string) uint16 {
	if port := c.carry.Ports[name]; port != 0 {
		return port
	}
	if c.taken == nil {
		c.reserve()
	}
	if port := c.held[name]; port != 0 {
		return port
	}
	at := hash(name)
	for i := range uint32(portCount) {
		f := front{netip.AddrPortFrom(c.innerOf(sp.IPv6), uint16(firstPort+(at+i)%portCount)), sp.Proto}
		if !c.taken[f] {
			c.taken[f] = true
			return f.addr.Port()
		}
	}
	return 0
}

// hash is FNV-1a.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// part makes the listeners of one ServicePort and what the rules see of it.
func (c *compiler) part(sp *proxy.ServicePort, old *part) *part {
	made := &part{from: sp}
	if old != nil && c.sameFronts {
		made.circular = old.circular
	} else {
		made.circular = c.circular(sp)
	}
	if old != nil && !old.failed && slices.Equal(old.circular, made.circular) && c.stillOpen(old) {
		return old
	}
	lists := listsOf(sp, made.circular)
	direct := sp.Proto == packet.SCTP // no process carries it: the kernel forwards it itself
	if !direct && c.capture {
		made.failed = !c.innerOf(sp.IPv6).IsValid()
		for i, which := range listNames() {
			name := innerName(sp, which)
			if len(lists[i].Targets) == 0 || made.failed {
				continue
			}
			made.names[i], made.ports[i] = name, c.port(sp, name)
			made.failed = made.failed || made.ports[i] == 0 || c.carry.Failed[name]
		}
	}
	if old != nil && old.ports == made.ports && old.failed == made.failed && slices.Equal(old.circular, made.circular) {
		return old
	}
	made.captured = sp
	switch {
	case !c.capture:
		if !direct {
			made.listeners = c.ownAddresses(sp, lists)
		}
	case direct:
		made.captured = kernelForwards(sp)
	default:
		made.listeners = c.inners(sp, made, lists)
		made.captured = c.led(sp, made)
		if c.plan.Config.LocalhostNodePorts {
			var more []*Listener
			more, made.refused = c.localhost(sp, lists)
			made.listeners = append(made.listeners, more...)
		}
	}
	return made
}

// stillOpen tells whether the listeners of a part are where it says, as far as is known.
func (c *compiler) stillOpen(old *part) bool {
	for i, name := range old.names {
		if name == "" {
			continue
		}
		if port := c.carry.Ports[name]; port != 0 && port != old.ports[i] || c.carry.Failed[name] {
			return false
		}
	}
	return true
}

// circular lists the endpoints that are a Service's own address: the process's connection
// to one would be captured again, and two such Services would send it round for ever.
func (c *compiler) circular(sp *proxy.ServicePort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, list := range [][]proxy.Endpoint{sp.Cluster, sp.Local} {
		for _, e := range list {
			if c.plan.Lookup(e.Addr, sp.Proto) != nil && !slices.Contains(out, e.Addr) {
				out = append(out, e.Addr)
			}
		}
	}
	return out
}

// led is the ServicePort the rules see: its endpoints are the inner listeners.
func (c *compiler) led(sp *proxy.ServicePort, made *part) *proxy.ServicePort {
	out := *sp
	out.Affinity, out.Scheduler = 0, proxy.Random
	out.Cluster, out.Local = nil, nil
	for i, to := range []*[]proxy.Endpoint{&out.Cluster, &out.Local} {
		if made.ports[i] != 0 {
			*to = []proxy.Endpoint{{Addr: netip.AddrPortFrom(c.innerOf(sp.IPv6), made.ports[i]), OnNode: true}}
		}
	}
	lost := len(out.Cluster) == 0 && len(sp.Cluster) > 0 || len(out.Local) == 0 && len(sp.Local) > 0
	if made.failed || lost {
		out.Cluster, out.Local, out.HasEndpoints = nil, nil, false
	}
	return &out
}

// kernelForwards is a ServicePort the rules forward without the process.
func kernelForwards(sp *proxy.ServicePort) *proxy.ServicePort {
	out := *sp
	if !proxy.NFTables.Can(sp.Scheduler) {
		out.Scheduler = proxy.Random
	}
	return &out
}

// Handover is the Plan of rules that forward to the endpoints themselves: with them in
// the capture's place the process can leave, and new connections go on.
func Handover(plan *proxy.Plan) *proxy.Plan {
	out := *plan
	out.Ports = make([]*proxy.ServicePort, len(plan.Ports))
	for i, sp := range plan.Ports {
		out.Ports[i] = kernelForwards(sp)
	}
	return withConfig(&out)
}
