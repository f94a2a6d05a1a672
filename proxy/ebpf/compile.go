// Package ebpf turns a Plan into the contents of the eBPF mode's maps: a Plan comes in,
// a Program of map entries goes out, in the bytes the kernel's programs read, with its
// text, the Change between two Programs and the way of a packet through them. It never
// touches the kernel, and decides nothing that the Plan has not decided.
package ebpf

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"fairway/packet"
	"fairway/proxy"
)

// Program is what the maps hold. It is never changed; a later one shares the parts of
// unchanged Service ports.
type Program struct {
	// Detector tells which interfaces lead to pods, when the plan tells pods by them.
	Detector proxy.Detector

	base   *Part
	parts  []*Part
	byPort map[*proxy.ServicePort]*Part
	nodes  []netip.Addr

	once  sync.Once
	index map[entryID]string
}

// Part is the entries of one Service port, or those of no Service.
type Part struct {
	Port    *proxy.ServicePort
	Entries []Entry
}

// Compile makes the Program of a plan. What prev (nil at first) holds for the same
// Service port is kept.
func Compile(prev *Program, plan *proxy.Plan) *Program {
	p := &Program{Detector: plan.Config.Detector, base: compileBase(plan), nodes: plan.Config.NodeIPs,
		parts: make([]*Part, 0, len(plan.Ports)), byPort: make(map[*proxy.ServicePort]*Part, len(plan.Ports))}
	var kept map[*proxy.ServicePort]*Part
	if prev != nil && slices.Equal(prev.nodes, p.nodes) {
		kept = prev.byPort
		if slices.Equal(prev.base.Entries, p.base.Entries) {
			p.base = prev.base
		}
	}
	for _, sp := range plan.Ports {
		part, ok := kept[sp]
		if !ok {
			part = &Part{Port: sp, Entries: compilePort(sp, plan)}
		}
		p.parts = append(p.parts, part)
		p.byPort[sp] = part
	}
	return p
}

// FromEntries is a Program as it was read from the kernel.
func FromEntries(list []Entry) *Program {
	return &Program{base: &Part{Entries: list}}
}

// InForce tells whether programs with these maps take new connections.
func (p *Program) InForce() bool {
	found := false
	p.each(func(part *Part) {
		found = found || slices.ContainsFunc(part.Entries, func(e Entry) bool { return e.Kind == Settings && e.Value[0]&SetIdle == 0 })
	})
	return found
}

// Entries lists everything.
func (p *Program) Entries() []Entry {
	var out []Entry
	p.each(func(part *Part) { out = append(out, part.Entries...) })
	return out
}

func (p *Program) each(do func(*Part)) {
	if p == nil {
		return
	}
	if p.base != nil {
		do(p.base)
	}
	for _, part := range p.parts {
		do(part)
	}
}

// ServiceID names a Service port in the maps. It depends on the name alone, so a restart
// finds the same, and what clients have learned stays true.
func ServiceID(k proxy.Key) uint64 { return identity("service", k) }

// identity is a number for a thing of a Service port, never 0. It is cut from a
// cryptographic hash: nobody can name a Service so that it meets another's endpoints.
func identity(thing string, k proxy.Key) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %v", thing, k.Service, k.PortName, k.Proto, k.IPv6))
	if id := binary.BigEndian.Uint64(sum[:]); id != 0 {
		return id
	}
	return 1
}

// Services finds the Service port of each number.
func (p *Program) Services() map[uint64]proxy.Key {
	out := make(map[uint64]proxy.Key, len(p.parts))
	for _, part := range p.parts {
		out[ServiceID(part.Port.Key)] = part.Port.Key
	}
	return out
}

func compileBase(plan *proxy.Plan) *Part {
	c := plan.Config
	s := settings{primary4: plan.PrimaryIP(false), primary6: plan.PrimaryIP(true), services: c.ServiceCIDRs}
	s.pods4, _ = c.Detector.CIDR(false)
	s.pods6, _ = c.Detector.CIDR(true)
	for flag, on := range map[uint32]bool{
		setMasqueradeAll: c.MasqueradeAll, setRejectUnknown: c.RejectUnknownPorts, setByLink: byLink(c.Detector),
		setDetect4: c.Detector.Implemented(false), setDetect6: c.Detector.Implemented(true),
	} {
		if on {
			s.flags |= flag
		}
	}
	if len(s.services) > maxServiceCIDR {
		s.services = s.services[:maxServiceCIDR]
	}
	part := &Part{Entries: []Entry{{Settings, u32(0), s.bytes()}}}
	done := map[netip.Addr]bool{}
	for _, a := range slices.Concat(c.NodeIPs, c.LocalAddrs) {
		if done[a] || a.IsLoopback() {
			continue
		}
		done[a] = true
		flags := uint32(nodeLocal)
		if plan.NodePortOn(a) {
			flags |= nodePorts
		}
		part.Entries = append(part.Entries, Entry{NodeAddrs, addrKey(a), u32(flags)})
	}
	return part
}

func byLink(d proxy.Detector) bool {
	return d.Interface != "" && (d.Mode == proxy.DetectBridgeInterface || d.Mode == proxy.DetectInterfaceNamePrefix)
}

// compilePort writes the entries of one Service port.
func compilePort(sp *proxy.ServicePort, plan *proxy.Plan) []Entry {
	if sp.Proto == packet.SCTP { // not served; its address is a Service's all the same
		if !sp.ClusterIP.IsValid() {
			return nil
		}
		return []Entry{{Fronts, addrKey(sp.ClusterIP), u32(1)}, {VIPs, addrKey(sp.ClusterIP), u32(1)}}
	}
	c := &portCompiler{sp: sp, service: ServiceID(sp.Key), pools: map[string]uint64{}}
	if sp.ClusterIP.IsValid() {
		f := c.frontend()
		f.flags |= feInternal
		switch {
		case f.flags&feReject != 0:
		case sp.InternalLocal:
			f.near = c.pool("local", sp.Local)
		default:
			f.near = c.pool("cluster", sp.Cluster)
		}
		f.far = f.near
		c.add(sp.ClusterIP, sp.Port, f)
		c.out = append(c.out, Entry{VIPs, addrKey(sp.ClusterIP), u32(1)})
	}
	for _, a := range sp.LoadBalancerIPs {
		if a != sp.ClusterIP {
			c.add(a, sp.Port, c.balancer(plan))
		}
	}
	for _, a := range sp.ExternalIPs {
		if a != sp.ClusterIP && !slices.Contains(sp.LoadBalancerIPs, a) {
			c.add(a, sp.Port, c.external())
		}
	}
	if sp.NodePort != 0 {
		c.add(anyAddr(sp.IPv6), sp.NodePort, c.external())
	}
	return c.out
}

func anyAddr(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

type portCompiler struct {
	sp      *proxy.ServicePort
	service uint64
	pools   map[string]uint64
	ranges  bool
	out     []Entry
}

func (c *portCompiler) add(a netip.Addr, port uint16, f frontend) {
	if !a.IsUnspecified() {
		c.out = append(c.out, Entry{Fronts, addrKey(a), u32(1)})
	}
	c.out = append(c.out, Entry{Frontends, frontendKey(a, port, c.sp.Proto), f.bytes()})
}

// frontend is what all frontends of the Service port have.
func (c *portCompiler) frontend() frontend {
	f := frontend{service: c.service}
	if !c.sp.HasEndpoints {
		f.flags |= feReject
		return f
	}
	f.affinity = uint32(c.sp.Affinity.Seconds())
	if c.sp.Scheduler.ByClient() {
		f.flags |= feByClient
	}
	return f
}

// external is a frontend reached from outside, by a node port or an address.
func (c *portCompiler) external() frontend {
	f := c.frontend()
	if f.flags&feReject != 0 {
		return f
	}
	f.near = c.pool("cluster", c.sp.Cluster)
	f.far = f.near
	if c.sp.ExternalLocal {
		f.flags |= feLocal
		f.far = c.pool("local", c.sp.Local)
	}
	return f
}

func (c *portCompiler) balancer(plan *proxy.Plan) frontend {
	f := c.external()
	if !c.sp.Restricted || f.flags&feReject != 0 {
		return f
	}
	f.flags |= feRestricted
	if c.sp.AdmitsNode(plan.Config.NodeIPs) {
		f.flags |= feAdmitSelf
	}
	own := plan.PrimaryIP(c.sp.IPv6)
	if slices.ContainsFunc(c.sp.SourceRanges, func(r netip.Prefix) bool { return own.IsValid() && r.Contains(own) }) {
		f.flags |= feAdmitNode
	}
	if !c.ranges {
		c.ranges = true
		c.writeRanges()
	}
	return f
}

func (c *portCompiler) writeRanges() {
	done := map[netip.Prefix]bool{}
	for _, r := range c.sp.SourceRanges {
		if r = r.Masked(); done[r] {
			continue
		}
		done[r] = true
		var w writer
		w.u32(uint32(64 + mappedBits(r)))
		w.big64(c.service)
		w.addr(r.Addr())
		c.out = append(c.out, Entry{Ranges, string(w.b), u32(1)})
	}
}

// pool writes a list of endpoints once and returns its number, 0 for an empty one.
func (c *portCompiler) pool(name string, list []proxy.Endpoint) uint64 {
	if len(list) == 0 {
		return 0
	}
	if id, done := c.pools[name]; done {
		return id
	}
	id := identity(name, c.sp.Key)
	c.pools[name] = id
	slots := 0
	if len(list) > 1 && (c.sp.External() || c.sp.Scheduler.ByClient()) {
		slots = tableSize(len(list))
		c.writeTable(id, list, slots)
	}
	// The first chunk has the number of all and comes last: it makes the others count.
	for i := (len(list) - 1) / ChunkSize; i >= 0; i-- {
		chunk := list[i*ChunkSize : min(len(list), (i+1)*ChunkSize)]
		c.out = append(c.out, Entry{Pools, poolKey(id, i), poolValue(id, len(list), slots, chunk)})
	}
	return id
}

func poolValue(id uint64, count, slots int, chunk []proxy.Endpoint) string {
	var w writer
	w.u64(id)
	w.u32(uint32(count))
	w.u32(uint32(slots))
	for _, e := range chunk {
		w.endpoint(e.Addr)
	}
	w.b = append(w.b, make([]byte, Pools.ValueSize()-len(w.b))...)
	return string(w.b)
}

func (c *portCompiler) writeTable(id uint64, list []proxy.Endpoint, slots int) {
	table := maglev(list, slots)
	for i := 0; i*tablePart < slots; i++ {
		var w writer
		for _, v := range table[i*tablePart : min(slots, (i+1)*tablePart)] {
			w.u16(v)
		}
		w.b = append(w.b, make([]byte, Tables.ValueSize()-len(w.b))...)
		c.out = append(c.out, Entry{Tables, poolKey(id, i), string(w.b)})
	}
}
