package ebpf

import (
	"fmt"
	"net/netip"
	"strings"

	"fairway/packet"
	"fairway/proxy"
)

// Trace walks the maps as the kernel's programs do with the first packet of a flow: a
// socket of this node at its connect, anything else at the interface it comes in by. The
// node's addresses are in the maps themselves, so local is not asked. Where the kernel
// would choose at random, or by a hash of ports, all choices are listed; a client is
// taken to be a new one.
func (p *Program) Trace(pkt packet.Packet, _ func(netip.Addr) bool) packet.Verdict {
	p.once.Do(p.buildIndex)
	t := &tracer{p: p, pkt: pkt}
	if v, ok := p.index[entryID{Settings, u32(0)}]; ok {
		t.set = readSettings(v)
	}
	v := t.walk()
	v.Steps = t.steps
	return v.Sorted()
}

func (p *Program) buildIndex() {
	p.index = map[entryID]string{}
	p.each(func(part *Part) {
		for _, e := range part.Entries {
			p.index[e.id()] = e.Value
		}
	})
}

type tracer struct {
	p     *Program
	pkt   packet.Packet
	set   settings
	steps []packet.Step
}

func (t *tracer) step(where, format string, args ...any) {
	t.steps = append(t.steps, packet.Step{Where: where, What: fmt.Sprintf(format, args...)})
}

func (t *tracer) get(kind Kind, key string) (Entry, bool) {
	v, ok := t.p.index[entryID{kind, key}]
	return Entry{kind, key, v}, ok
}

func (t *tracer) walk() packet.Verdict {
	socket := t.pkt.Local || t.pkt.OnNode && t.pkt.Proto == packet.TCP
	switch {
	case t.pkt.Proto == packet.SCTP:
		t.step("tc ingress", "SCTP is not looked at")
		return packet.Verdict{Action: packet.Pass}
	case socket:
		if v, settled := t.atSocket(); settled {
			return v
		}
	case t.pkt.OnNode:
		t.step("cgroup connect", "a pod's datagrams are translated packet by packet")
	}
	return t.atDoor()
}

// frontend finds the element a destination belongs to.
func (t *tracer) frontend(where string) (frontend, bool) {
	dst := t.pkt.Dst
	e, ok := t.get(Frontends, frontendKey(dst.Addr(), dst.Port(), t.pkt.Proto))
	if !ok && t.nodeFlags(dst.Addr())&nodePorts != 0 {
		a, _ := t.get(NodeAddrs, addrKey(dst.Addr()))
		t.step(where, "%s", a)
		e, ok = t.get(Frontends, frontendKey(anyAddr(dst.Addr().Is6()), dst.Port(), t.pkt.Proto))
	}
	if !ok {
		return frontend{}, false
	}
	t.step(where, "%s", e)
	return readFrontend(e.Value), true
}

func (t *tracer) nodeFlags(a netip.Addr) uint32 {
	e, ok := t.get(NodeAddrs, addrKey(a))
	if !ok {
		return 0
	}
	r := reader(e.Value)
	return r.u32()
}

// unknown is the fate of a destination that is no frontend.
func (t *tracer) unknown(where string) packet.Verdict {
	dst := t.pkt.Dst.Addr()
	if t.set.flags&setRejectUnknown != 0 {
		if e, ok := t.get(VIPs, addrKey(dst)); ok {
			t.step(where, "%s: a cluster address, and no port of it", e)
			return packet.Verdict{Action: packet.Reject}
		}
		for _, c := range t.set.services {
			if c.Contains(dst) {
				t.step(where, "settings: %s is in %s and no Service's", dst, c)
				return packet.Verdict{Action: packet.Drop}
			}
		}
	}
	t.step(where, "no frontend is %s/%s", t.pkt.Dst, t.pkt.Proto)
	return packet.Verdict{Action: packet.Pass}
}

// atSocket is connect and sendmsg of a process of this node; settled is false when the
// packet's own way decides.
func (t *tracer) atSocket() (v packet.Verdict, settled bool) {
	const where = "cgroup connect"
	f, ok := t.frontend(where)
	switch {
	case !ok:
		v = t.unknown(where)
		return v, v.Action != packet.Pass || t.pkt.Local
	case f.flags&feReject != 0:
		return packet.Verdict{Action: packet.Reject}, true
	case f.flags&feRestricted != 0 && !t.pkt.Local:
		t.step(where, "which source a pod's socket will have is not known: left to the packets")
		return v, false
	case f.flags&feRestricted != 0 && !t.admitted(where, f):
		return packet.Verdict{Action: packet.Drop}, true
	}
	return t.forward(where, f, f.near, false, true), true
}

func (t *tracer) admitted(where string, f frontend) bool {
	if f.flags&feAdmitSelf != 0 && t.pkt.Src == t.pkt.Dst.Addr() {
		t.step(where, "the frontend's own address is admitted where the node is")
		return true
	}
	for bits := t.pkt.Src.BitLen(); bits >= 0; bits-- {
		r := netip.PrefixFrom(t.pkt.Src, bits).Masked()
		var w writer
		w.u32(uint32(64 + mappedBits(r)))
		w.big64(f.service)
		w.addr(r.Addr())
		if e, ok := t.get(Ranges, string(w.b)); ok {
			t.step(where, "%s", e)
			return true
		}
	}
	t.step(where, "no range of service %016x has %s", f.service, t.pkt.Src)
	return false
}

// atDoor is a packet that arrives on an interface.
func (t *tracer) atDoor() packet.Verdict {
	const where = "tc ingress"
	f, ok := t.frontend(where)
	switch {
	case !ok:
		return t.unknown(where)
	case f.flags&feReject != 0:
		return packet.Verdict{Action: packet.Reject}
	case f.flags&feRestricted != 0 && !t.admitted(where, f):
		return packet.Verdict{Action: packet.Drop}
	}
	pod, v6 := t.fromPod(), t.pkt.Dst.Addr().Is6()
	detect := uint32(setDetect4)
	if v6 {
		detect = setDetect6
	}
	pool, masq := f.near, false
	switch {
	case f.flags&feInternal != 0:
		masq = t.set.flags&setMasqueradeAll != 0 || t.set.flags&detect != 0 && !pod
	case f.flags&feLocal == 0:
		masq = true
	case pod:
	case t.nodeFlags(t.pkt.Src)&nodeLocal != 0:
		masq = true
	default:
		pool = f.far
	}
	return t.forward(where, f, pool, masq, false)
}

func (t *tracer) fromPod() bool {
	if t.set.flags&setByLink != 0 {
		d := t.p.Detector
		if d.Mode == proxy.DetectBridgeInterface {
			return t.pkt.In == d.Interface
		}
		return strings.HasPrefix(t.pkt.In, d.Interface)
	}
	pods := t.set.pods4
	if t.pkt.Src.Is6() {
		pods = t.set.pods6
	}
	return pods.IsValid() && pods.Contains(t.pkt.Src)
}

func (t *tracer) forward(where string, f frontend, pool uint64, masq, socket bool) packet.Verdict {
	list := t.pool(where, pool)
	if len(list) == 0 {
		t.step(where, "no endpoint may be used from here")
		return packet.Verdict{Action: packet.Drop}
	}
	v := packet.Verdict{Action: packet.Forward, Affinity: f.affinity > 0 || f.flags&feByClient != 0}
	for _, a := range list {
		hairpin := !socket && a.Addr() == t.pkt.Src
		v.Choices = append(v.Choices, packet.Choice{Endpoint: a, Masquerade: masq || hairpin})
		if hairpin && !masq {
			t.step("tc egress", "%s may reach itself: masquerade then", a)
		}
	}
	if masq {
		t.step("tc egress", "the packet leaves with the node's address")
	}
	return v
}

func (t *tracer) pool(where string, id uint64) []netip.AddrPort {
	var list []netip.AddrPort
	for chunk := 0; ; chunk++ {
		e, ok := t.get(Pools, poolKey(id, chunk))
		if !ok || id == 0 {
			return list
		}
		t.step(where, "%s", e)
		v := reader(e.Value)
		v.take(16)
		list = append(list, v.endpoints()...)
	}
}
