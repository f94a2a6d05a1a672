// Package trace answers "why does my packet not arrive": a source and a destination (a
// packet, a Service, a name or a URL) come in, the way through DNS, the rules of the
// mode in force and the Ingress routes goes out, step by step. It is composition only:
// every step is told by the room whose step it is.
package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairway/dns"
	"fairway/ingress"
	"fairway/lb"
	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
)

// Rules is a compiled program of a proxy mode.
type Rules interface {
	Trace(pkt packet.Packet, local func(netip.Addr) bool) packet.Verdict
}

// World is what a trace walks through: one node's view.
type World struct {
	Snap  *model.Snapshot
	Plan  *proxy.Plan
	Mode  string
	Rules Rules
	Zone  *dns.Zone
	Table *ingress.Table
	LB    lb.Config
	// IngressService is the Service in front of the Ingress controller.
	IngressService model.Name
	// PodPorts are what a Pod's containers declare, false when the Pod is not known.
	PodPorts func(model.Name) ([]PodPort, bool)
	// Node gives the plan and rules of another node; nil when there are none.
	Node func(name string) (*proxy.Plan, Rules)
}

// Report is the whole way.
type Report struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Parts  []Part `json:"parts"`
	Result string `json:"result"`
	// Arrives is false when the packet, name or request gets nowhere, or where from here
	// nobody can say: that is when it Leaves the cluster.
	Arrives bool `json:"arrives"`
	Leaves  bool `json:"leaves"`
}

// Part is one room's share of the way.
type Part struct {
	Title  string        `json:"title"`
	Steps  []packet.Step `json:"steps"`
	Result string        `json:"result"`
}

// Trace follows to, which is ADDR:PORT, svc/NS/NAME:PORT, a URL, or a NAME with or
// without :PORT. The error is for a destination that cannot be read; everything else,
// good or bad, is the Report.
func (w *World) Trace(from From, to string, proto packet.Protocol) (*Report, error) {
	r := &Report{From: from.String(), To: to}
	if strings.Contains(to, "://") {
		return r, w.url(r, from, to)
	}
	if name, ok := strings.CutPrefix(to, "svc/"); ok {
		return r, w.service(r, from, name, proto)
	}
	if a, portText, ok := address(to); ok {
		port, err := portNumber(to, portText)
		if err == nil {
			w.packet(r, from, netip.AddrPortFrom(a, port), proto)
		}
		return r, err
	}
	if a, err := netip.ParseAddr(to); err == nil {
		return r, fmt.Errorf("--to %s: an address needs a port: %s", to, netip.AddrPortFrom(a, 80))
	}
	return r, w.name(r, from, to, proto)
}

func (r *Report) add(title string, steps []packet.Step, result string) {
	r.Parts = append(r.Parts, Part{Title: title, Steps: steps, Result: result})
	r.Result = result
}

func (w *World) packet(r *Report, from From, dst netip.AddrPort, proto packet.Protocol) packet.Verdict {
	src, ok := from.Addr(dst.Addr().Is6())
	if !ok {
		r.add("packet", nil, fmt.Sprintf("%s has no address of the family of %s", from, dst.Addr()))
		return packet.Verdict{Action: packet.Drop}
	}
	if dst.Addr().IsLoopback() && !from.Local {
		r.Arrives = false
		r.add("packet", nil, fmt.Sprintf("%s is each machine's and each pod's own loopback: to the node's only the node itself can send (--from node/NAME)", dst.Addr()))
		return packet.Verdict{Action: packet.Drop}
	}
	pkt := packet.Packet{Src: src, Dst: dst, Proto: proto, In: from.In, Local: from.Local}
	pkt.OnNode = from.Local || from.pod && from.Node == w.Plan.Config.Node
	if dst.Addr().IsLoopback() || from.Local && dst.Addr() == src {
		pkt.Src = dst.Addr()
	}
	if w.holders(dst.Addr()) && from.outside() {
		r.Parts = append(r.Parts, Part{Title: "address " + dst.Addr().String(), Steps: lb.Trace(w.Snap, w.LB, nil, w.Plan.Config.Node, dst.Addr())})
	}
	v := w.Rules.Trace(pkt, w.local)
	result, arrives := w.explain(pkt, v)
	steps := append(slices.Clone(v.Steps), w.untried(pkt, v)...)
	r.add(fmt.Sprintf("%s rules of node %s", w.Mode, nodeName(w.Plan.Config.Node)), steps, result)
	r.Arrives = arrives
	if other := w.nodeAt(dst.Addr()); v.Action == packet.Pass && other != "" && other != w.Plan.Config.Node && w.Node != nil {
		return w.onward(r, from, dst, proto, other)
	}
	return v
}

// onward follows a packet to another node's own address, where that node's rules meet it.
func (w *World) onward(r *Report, from From, dst netip.AddrPort, proto packet.Protocol, node string) packet.Verdict {
	next := *w
	next.Plan, next.Rules = w.Node(node)
	next.Node = nil // it ends there
	from.Local = false
	return next.packet(r, from, dst, proto)
}

// nodeAt is the node an address belongs to, empty when it is no node's.
func (w *World) nodeAt(a netip.Addr) string {
	for _, n := range w.Snap.Nodes {
		if slices.Contains(n.InternalIPs, a) || slices.Contains(n.ExternalIPs, a) {
			return n.Name
		}
	}
	return ""
}

func nodeName(s string) string {
	if s == "" {
		return "(unnamed)"
	}
	return s
}

func (w *World) local(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(w.Plan.Config.LocalAddrs, a) || slices.Contains(w.Plan.Config.NodeIPs, a)
}

func (w *World) holders(a netip.Addr) bool {
	for _, s := range w.Snap.Services {
		if s.Type == model.LoadBalancer && slices.ContainsFunc(s.Ingress, func(i model.LBIngress) bool { return i.IP == a }) {
			return true
		}
	}
	return false
}

// explain puts the verdict in words, with the Pods behind the endpoints, and tells
// whether the packet arrives.
func (w *World) explain(pkt packet.Packet, v packet.Verdict) (string, bool) {
	sp := w.Plan.Lookup(pkt.Dst, pkt.Proto)
	switch v.Action {
	case packet.Reject:
		return "rejected: the client sees connection refused at once" + because(w.why(pkt)), false
	case packet.Drop:
		return "dropped: the client waits until it times out" + because(w.why(pkt)), false
	case packet.Pass:
		return w.passed(pkt)
	}
	parts := make([]string, len(v.Choices))
	for i, c := range v.Choices {
		parts[i] = c.String() + podOf(sp, c.Endpoint)
	}
	s := "forwarded to " + strings.Join(parts, ", ")
	if len(parts) > 1 {
		s = fmt.Sprintf("forwarded to one of %d, 1/%d each: %s", len(parts), len(parts), strings.Join(parts, ", "))
	}
	if v.Affinity {
		s += "; the client keeps its choice (ClientIP affinity)"
	}
	return s, true
}

// passed says where a packet goes that no rule takes.
func (w *World) passed(pkt packet.Packet) (string, bool) {
	a := pkt.Dst.Addr()
	if p := w.podAt(a); p.Name != "" {
		return fmt.Sprintf("no Service rule takes it: it goes straight to pod %s, if something listens on %d there", p, pkt.Dst.Port()), true
	}
	for _, s := range w.Snap.Services {
		for _, e := range s.Endpoints {
			if e.Addr == a {
				return fmt.Sprintf("no Service rule takes it: it goes straight to %s, an endpoint of Service %s", a, s.Name), true
			}
		}
	}
	const untaken = "no Service rule takes it"
	n, why := w.nodeAt(a), w.why(pkt)
	switch {
	case n != "":
		return fmt.Sprintf("%s%s; it goes to node %s itself", untaken, because(why), n), false
	case why != "":
		return untaken + because(why), false
	}
	return fmt.Sprintf("%s: %s is no address of a Service, Pod or Node known here; it goes where the routes lead", untaken, a), false
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// untried are lines about ports nobody declares, on the Pods a packet may get to.
func (w *World) untried(pkt packet.Packet, v packet.Verdict) []packet.Step {
	if v.Action == packet.Pass {
		return w.undeclared([]netip.AddrPort{pkt.Dst}, func(e netip.AddrPort) model.Name { return w.podAt(e.Addr()) }, pkt.Proto)
	}
	sp := w.Plan.Lookup(pkt.Dst, pkt.Proto)
	if sp == nil {
		return nil
	}
	ends := make([]netip.AddrPort, len(v.Choices))
	for i, c := range v.Choices {
		ends[i] = c.Endpoint
	}
	return w.undeclared(ends, func(e netip.AddrPort) model.Name { return podBehind(sp, e) }, pkt.Proto)
}

// podAt is the Pod that has an address of its own, empty when none has.
func (w *World) podAt(a netip.Addr) model.Name {
	for _, p := range w.Snap.Pods {
		if slices.Contains(p.IPs, a) && !p.HostNetwork {
			return p.Name
		}
	}
	return model.Name{}
}

func podOf(sp *proxy.ServicePort, ep netip.AddrPort) string {
	if sp == nil {
		return ""
	}
	if p := podBehind(sp, ep); p.Name != "" {
		return " (pod " + p.String() + ")"
	}
	return ""
}

func podBehind(sp *proxy.ServicePort, ep netip.AddrPort) model.Name {
	for _, e := range slices.Concat(sp.Cluster, sp.Local) {
		if e.Addr == ep && e.Pod.Name != "" {
			return e.Pod
		}
	}
	return model.Name{}
}

// service follows svc/NS/NAME:PORT, where PORT is a number or a name.
func (w *World) service(r *Report, from From, ref string, proto packet.Protocol) error {
	name, port, _ := strings.Cut(ref, ":")
	ns, svcName, ok := strings.Cut(name, "/")
	if !ok {
		return fmt.Errorf("--to svc/%s: want svc/NAMESPACE/NAME:PORT", ref)
	}
	svc := w.Snap.Service(model.Name{Namespace: ns, Name: svcName})
	if svc == nil {
		r.add("service", nil, fmt.Sprintf("there is no Service %s/%s", ns, svcName))
		return nil
	}
	if !svc.HasVIP() {
		return w.name(r, from, svcName+"."+ns+".svc", proto)
	}
	p, err := servicePort(svc, port)
	if err != nil {
		return err
	}
	if from.outside() {
		return w.fromOutside(r, from, svc, p)
	}
	for _, vip := range svc.ClusterIPs {
		if _, ok := from.Addr(vip.Is6()); ok {
			w.packet(r, from, netip.AddrPortFrom(vip, p.Port), p.Protocol)
			return nil
		}
	}
	r.add("service", nil, fmt.Sprintf("%s has no address of a family of Service %s (%v)", from, svc.Name, svc.ClusterIPs))
	return nil
}

// fromOutside takes the address a client outside would use: the balancer's, an external
// one, a node port; a cluster address is none of those.
func (w *World) fromOutside(r *Report, from From, svc *model.Service, p model.Port) error {
	var addrs []netip.Addr
	for _, in := range svc.Ingress {
		addrs = append(addrs, in.IP)
	}
	for _, a := range append(addrs, svc.ExternalIPs...) {
		if _, ok := from.Addr(a.Is6()); ok && a.IsValid() {
			w.packet(r, from, netip.AddrPortFrom(a, p.Port), p.Protocol)
			return nil
		}
	}
	if node, ok := w.Plan.PrimaryIP(false), p.NodePort != 0; ok && node.IsValid() {
		w.packet(r, from, netip.AddrPortFrom(node, p.NodePort), p.Protocol)
		return nil
	}
	why := fmt.Sprintf("Service %s has no address outside the cluster", svc.Name)
	if svc.Type == model.LoadBalancer {
		why += ": EXTERNAL-IP is <pending>"
	}
	r.add("service", nil, why)
	return nil
}

func servicePort(svc *model.Service, port string) (model.Port, error) {
	for _, p := range svc.Ports {
		if port == "" && len(svc.Ports) == 1 || port == p.Name && port != "" || port == strconv.Itoa(int(p.Port)) {
			return p, nil
		}
	}
	return model.Port{}, fmt.Errorf("--to svc/%s:%s: the Service has ports %s", svc.Name, port, ports(svc))
}
