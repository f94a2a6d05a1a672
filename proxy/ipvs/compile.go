// Package ipvs compiles a proxy.Plan into what IPVS mode needs on a node: a Plan goes in,
// a Program goes out for each family: virtual services with their destinations, the
// addresses of the dummy device kube-ipvs0, ipsets under kube-proxy's names and a fixed,
// small number of rules; it can be printed in the words of ipvsadm, ipset, ip and
// iptables-save, compared with another or with what the kernel lists, and walked by a
// packet. It holds no policy and touches nothing.
//
// One address and port can lead to two lists: with externalTrafficPolicy Local, what
// comes from outside takes the node's own endpoints, pods of the node and the node
// itself take any. IPVS knows one list per address, which is why kube-proxy's IPVS mode
// gets this wrong; but it looks for the packet's firewall mark first. So the virtual
// service of the address holds the local list, and for each such ServicePort there are
// two more by mark, with the whole list: one for pods, one for the node, whose packets
// are masqueraded and carry that bit too. The mark of a packet is found by one lookup in
// a set whose elements hold marks (skbinfo, `SET --map-set`), whatever the number of
// Services; it is written to new flows only, before IPVS, and wiped after it. That such
// marks are no API and may be anybody's is met by a prefix and 23 bits of a hash. Marks
// set by one rule per Service would be walked in a line; a second, private address
// behind a DNAT would translate every packet twice.
//
// What IPVS itself cannot: a datagram the node sends to a Service by IPv6 must fit the
// path's MTU. It leaves as if for the node, whose MTU is 64 KiB, and what the kernel then
// learns of the path it does not keep for an address of its own; the sender gets EMSGSIZE.
//
// Chains are called KUBE-IPVS-…, unlike kube-proxy's: those it shares between its modes
// make it impossible to have both in place while one takes over from the other.
package ipvs

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"reflect"
	"slices"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
)

// Device is the dummy device that holds the VIPs, by kube-proxy's name.
const Device = "kube-ipvs0"

// Program is what both families should have. It holds one part per ServicePort and
// writes things out when asked.
type Program struct {
	families [2]family // IPv4, IPv6
}

type family struct {
	set   settings
	parts []*part
	// addrs are those of Device, sorted.
	addrs []netip.Addr
}

// part is what a ServicePort compiles to. Its pointer stays the same while the
// ServicePort's does and the node is as it was, which is how Diff finds changes.
type part struct {
	port   *proxy.ServicePort
	health uint16 // healthCheckNodePort to let in, 0 for none
	mark   uint32 // of pods that take any endpoint; 0 when one list does for all
}

// settings is what the node says about every ServicePort of a family.
type settings struct {
	v6            bool
	mark          uint32 // masquerade
	masqueradeAll bool
	detector      proxy.Detector
	// nodePorts are the addresses NodePorts answer on; anyNodePort says they are all of
	// the node's.
	nodePorts   []netip.Addr
	anyNodePort bool
	// own are the node's addresses, which Device need not hold.
	own     map[netip.Addr]bool
	nodeIPs []netip.Addr
	// claimed are the addresses in nodePorts with a port that are some Service's
	// external address: its virtual service, not a NodePort's.
	claimed      map[front]bool
	reject       bool // unknown ports of a VIP
	serviceCIDRs []netip.Prefix
}

// Compile makes the Program of a Plan. Parts of ServicePorts that prev (nil at first)
// compiled already are taken over.
func Compile(prev *Program, plan *proxy.Plan) *Program {
	p := &Program{}
	health := make(map[model.Name]uint16, len(plan.Health))
	for _, h := range plan.Health {
		health[h.Service] = h.Port
	}
	for i := range p.families {
		f := &p.families[i]
		f.set = newSettings(plan, i == 1)
		kept := map[*proxy.ServicePort]*part{}
		marks := marker{set: f.set, kept: map[proxy.Key]uint32{}, used: map[uint32]bool{}}
		if prev != nil {
			same := reflect.DeepEqual(prev.families[i].set, f.set)
			for _, old := range prev.families[i].parts {
				if same {
					kept[old.port] = old
				}
				if old.mark != 0 && prev.families[i].set.mark == f.set.mark {
					marks.kept[old.port.Key], marks.used[old.mark] = old.mark, true
				}
			}
		}
		for _, sp := range plan.Ports {
			if sp.IPv6 != (i == 1) {
				continue
			}
			one := kept[sp]
			if one == nil || one.health != health[sp.Service] {
				one = &part{port: sp, health: health[sp.Service]}
				if twoLists(sp) {
					one.mark = marks.of(sp.Key)
				}
			}
			f.parts = append(f.parts, one)
		}
		f.addrs = f.bound()
	}
	return p
}

// Without is the Program less the ServicePorts that refused names.
func (p *Program) Without(refused func(*proxy.ServicePort) bool) *Program {
	out := &Program{families: p.families}
	for i := range out.families {
		f := &out.families[i]
		f.parts = slices.DeleteFunc(slices.Clone(f.parts), func(one *part) bool { return refused(one.port) })
		f.addrs = f.bound()
	}
	return out
}

func (p *Program) family(v6 bool) *family {
	if v6 {
		return &p.families[1]
	}
	return &p.families[0]
}

func newSettings(plan *proxy.Plan, v6 bool) settings {
	cfg := plan.Config
	s := settings{
		v6: v6, mark: 1 << cfg.MasqueradeBit, masqueradeAll: cfg.MasqueradeAll, detector: cfg.Detector,
		own: map[netip.Addr]bool{}, nodeIPs: cfg.NodeIPs, claimed: map[front]bool{}, reject: cfg.RejectUnknownPorts,
	}
	sel := cfg.NodePortAddresses
	s.anyNodePort = !sel.Primary && !slices.ContainsFunc(sel.CIDRs, func(c netip.Prefix) bool { return c.Addr().Is6() == v6 && c.Bits() > 0 })
	for _, a := range slices.Concat(cfg.NodeIPs, cfg.LocalAddrs) {
		if a.Is6() != v6 || s.own[a] {
			continue
		}
		s.own[a] = true
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() && plan.NodePortOn(a) {
			s.nodePorts = append(s.nodePorts, a)
		}
	}
	slices.SortFunc(s.nodePorts, netip.Addr.Compare)
	for _, c := range cfg.ServiceCIDRs {
		if s.reject && c.Addr().Is6() == v6 {
			s.serviceCIDRs = append(s.serviceCIDRs, c.Masked())
		}
	}
	for _, sp := range plan.Ports {
		for _, a := range slices.Concat(sp.ExternalIPs, sp.LoadBalancerIPs) {
			if slices.Contains(s.nodePorts, a) {
				s.claimed[front{a, sp.Port, sp.Proto}] = true
			}
		}
	}
	return s
}

// bound lists the addresses Device is to hold: every VIP that is not the node's anyway. A
// cluster address that some interface has as well (a DNS cache on the node may) is held all
// the same: it is told by Device from addresses that nobody has.
func (f *family) bound() []netip.Addr {
	seen := make(map[netip.Addr]bool, len(f.parts))
	var out []netip.Addr
	for _, p := range f.parts {
		for _, list := range [][]netip.Addr{{p.port.ClusterIP}, p.port.ExternalIPs, p.port.LoadBalancerIPs} {
			for _, a := range list {
				if a.IsValid() && !seen[a] && (!f.set.own[a] || a == p.port.ClusterIP) {
					seen[a] = true
					out = append(out, a)
				}
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// twoLists tells whether what comes from outside takes other endpoints than the rest.
func twoLists(sp *proxy.ServicePort) bool {
	return sp.ExternalLocal && sp.External() && sp.HasEndpoints
}

// markPrefix is the byte all our marks have, the highest, or the lowest where the
// masquerade bit is among the highest.
const markPrefix = 0xfa

func (s settings) prefix() (value, mask uint32) {
	if s.mark >= 1<<24 {
		return markPrefix, 0xff
	}
	return markPrefix << 24, 0xff << 24
}

// marker gives ServicePorts marks: what they had, else by the hash of their name, so
// that a restart finds the same.
type marker struct {
	set  settings
	kept map[proxy.Key]uint32
	used map[uint32]bool
}

func (m marker) of(k proxy.Key) uint32 {
	if mark, ok := m.kept[k]; ok {
		return mark
	}
	sum := sha256.Sum256([]byte(k.String() + string(k.Proto)))
	value, mask := m.set.prefix()
	for n := binary.BigEndian.Uint32(sum[:]); ; n += 0x00010101 {
		mark := n&^mask&^m.set.mark | value
		if !m.used[mark] {
			m.used[mark] = true
			return mark
		}
	}
}

// front is an address with a port something answers on.
type front struct {
	addr  netip.Addr
	port  uint16
	proto packet.Protocol
}

func (a front) compare(b front) int {
	return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.port, b.port), cmp.Compare(a.proto, b.proto))
}

// Bound is the number of addresses of Device in a family.
func (p *Program) Bound(v6 bool) int { return len(p.family(v6).addrs) }

// Any is one of a family's virtual services, nil when there is none.
func (p *Program) Any(v6 bool) *ServiceKey {
	f := p.family(v6)
	for _, one := range f.parts {
		if list := f.set.services(one); len(list) > 0 {
			return &list[0].Key
		}
	}
	return nil
}

// Owners maps virtual services to whose they are.
func (p *Program) Owners() map[ServiceKey]proxy.Key {
	out := map[ServiceKey]proxy.Key{}
	for i := range p.families {
		for _, one := range p.families[i].parts {
			for _, s := range p.families[i].set.services(one) {
				out[s.Key] = one.port.Key
			}
		}
	}
	return out
}
