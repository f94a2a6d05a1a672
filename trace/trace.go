// Package trace answers "why does my packet not arrive": a source and a destination (a
// packet, a Service, a name or a URL) come in, the way through DNS, the rules of the
// mode in force and the Ingress routes goes out, step by step. It is composition only:
// every step is told by the room whose step it is.
package trace

import (
	"fmt"
	"net/netip"
	"net/url"
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
}

// Report is the whole way.
type Report struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Parts  []Part `json:"parts"`
	Result string `json:"result"`
	// Arrives is false when the packet, name or request gets nowhere.
	Arrives bool `json:"arrives"`
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
	if dst, err := netip.ParseAddrPort(to); err == nil {
		w.packet(r, from, dst, proto)
		return r, nil
	}
	if a, err := netip.ParseAddr(to); err == nil {
		return r, fmt.Errorf("--to %s: an address needs a port: %s:80", to, a)
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
	pkt := packet.Packet{Src: src, Dst: dst, Proto: proto, In: from.In, Local: from.Local}
	if dst.Addr().IsLoopback() || from.Local && dst.Addr() == src {
		pkt.Src = dst.Addr()
	}
	if holds := w.holders(dst.Addr()); holds && !from.Local && !from.pod {
		r.add("address", lb.Trace(w.Snap, w.LB, nil, w.Plan.Config.Node, dst.Addr()), "the owner above answers for "+dst.Addr().String())
	}
	v := w.Rules.Trace(pkt, w.local)
	r.add(fmt.Sprintf("%s rules of node %s", w.Mode, nodeName(w.Plan.Config.Node)), v.Steps, w.explain(pkt, v))
	r.Arrives = v.Action == packet.Forward
	return v
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

// explain puts the verdict in words, with the Pods behind the endpoints.
func (w *World) explain(pkt packet.Packet, v packet.Verdict) string {
	switch v.Action {
	case packet.Reject:
		return "rejected: the client sees connection refused at once"
	case packet.Drop:
		return "dropped: the client waits until it times out"
	case packet.Pass:
		return "no Service rule takes it: it goes where the routes lead, as " + pkt.Dst.String()
	}
	sp := w.Plan.Lookup(pkt.Dst, pkt.Proto)
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
	return s
}

func podOf(sp *proxy.ServicePort, ep netip.AddrPort) string {
	if sp == nil {
		return ""
	}
	for _, e := range slices.Concat(sp.Cluster, sp.Local) {
		if e.Addr == ep && e.Pod.Name != "" {
			return " (pod " + e.Pod.String() + ")"
		}
	}
	return ""
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
	for _, vip := range svc.ClusterIPs {
		if _, ok := from.Addr(vip.Is6()); ok {
			w.packet(r, from, netip.AddrPortFrom(vip, p.Port), p.Protocol)
			return nil
		}
	}
	r.add("service", nil, fmt.Sprintf("%s has no address of a family of Service %s (%v)", from, svc.Name, svc.ClusterIPs))
	return nil
}

func servicePort(svc *model.Service, port string) (model.Port, error) {
	var have []string
	for _, p := range svc.Ports {
		if port == "" && len(svc.Ports) == 1 || port == p.Name && port != "" || port == strconv.Itoa(int(p.Port)) {
			return p, nil
		}
		have = append(have, strings.TrimPrefix(fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol), ":"))
	}
	return model.Port{}, fmt.Errorf("--to svc/%s:%s: the Service has ports %s", svc.Name, port, strings.Join(have, ", "))
}

// name follows a DNS name, and a packet to its first address when a port is given.
func (w *World) name(r *Report, from From, to string, proto packet.Protocol) error {
	name, portText, hasPort := strings.Cut(to, ":")
	addr, ok := w.resolve(r, from, name)
	if !ok || !hasPort {
		return nil
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return fmt.Errorf("--to %s: %q is not a port number", to, portText)
	}
	w.packet(r, from, netip.AddrPortFrom(addr, uint16(port)), proto)
	return nil
}

// resolve walks the search list; ok says that an address of the cluster came out.
func (w *World) resolve(r *Report, from From, name string) (netip.Addr, bool) {
	var search []string
	if from.Namespace != "" {
		search = w.Zone.Search(from.Namespace)
	}
	walk := w.Zone.Trace(name, search)
	r.Arrives = walk.Found != ""
	for _, t := range walk.Tries {
		for _, rec := range slices.Concat(t.A.Answer, t.AAAA.Answer) {
			if _, ok := from.Addr(rec.Addr.Is6()); t.Name == walk.Found && rec.Addr.IsValid() && ok {
				r.add("name "+name, walk.Steps(), fmt.Sprintf("%s is %s", strings.TrimSuffix(walk.Found, "."), rec.Addr))
				return rec.Addr, true
			}
		}
	}
	switch {
	case walk.Found != "":
		r.add("name "+name, walk.Steps(), "leads to a name outside the cluster: the upstream resolver answers")
	case len(walk.Upstream) > 0:
		r.add("name "+name, walk.Steps(), "not a name of the cluster: the upstream resolver answers for "+strings.TrimSuffix(walk.Upstream[len(walk.Upstream)-1], "."))
	default:
		r.add("name "+name, walk.Steps(), "does not resolve")
	}
	return netip.Addr{}, false
}

// url follows a request: its name, the packet to the address, and the Ingress route
// when it gets to the controller.
func (w *World) url(r *Report, from From, to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return fmt.Errorf("--to %s: not a URL", to)
	}
	port, err := urlPort(u)
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		var inside bool
		if addr, inside = w.resolve(r, from, u.Hostname()); !inside {
			if last := r.Parts[len(r.Parts)-1]; last.Result == "does not resolve" {
				return nil
			}
			w.route(r, u)
			return nil
		}
	}
	dst := netip.AddrPortFrom(addr, port)
	if v := w.packet(r, from, dst, packet.TCP); v.Action != packet.Forward {
		return nil
	}
	if sp := w.Plan.Lookup(dst, packet.TCP); sp != nil && sp.Service == w.IngressService {
		w.route(r, u)
	}
	return nil
}

func urlPort(u *url.URL) (uint16, error) {
	switch {
	case u.Port() != "":
		p, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return 0, fmt.Errorf("--to %s: bad port", u)
		}
		return uint16(p), nil
	case u.Scheme == "https":
		return 443, nil
	case u.Scheme == "http":
		return 80, nil
	}
	return 0, fmt.Errorf("--to %s: scheme %s is not http or https", u, u.Scheme)
}

// route asks the Ingress table.
func (w *World) route(r *Report, u *url.URL) {
	route, steps := w.Table.Match(u.Host, u.EscapedPath())
	if u.Scheme == "https" {
		steps = append(steps, w.certificate(u.Hostname())...)
	}
	r.Arrives = false
	switch {
	case route == nil:
		r.add("ingress", steps, "404: no Ingress has this host and path, and there is no default backend")
	case route.Refused != "":
		r.add("ingress", steps, "503: "+route.Refused)
	case u.Scheme == "http" && w.Table.RedirectsToHTTPS(route, ingressHost(u), u.EscapedPath()):
		r.Arrives = true
		r.add("ingress", steps, "308: redirected to https")
	case route.Backend == nil || len(route.Backend.Endpoints) == 0 && route.Backend.ExternalName == "":
		r.add("ingress", steps, "503: "+noEndpoint(route))
	default:
		r.Arrives = true
		r.add("ingress", steps, backendText(route))
	}
}

func ingressHost(u *url.URL) string {
	h, _ := ingress.NormalHost(u.Host)
	return h
}

func noEndpoint(route *ingress.Route) string {
	if route.Backend != nil && route.Backend.Missing != "" {
		return route.Backend.Missing
	}
	return "no ready endpoint behind Service " + route.Backend.Service.String()
}

func backendText(route *ingress.Route) string {
	if n := route.Backend.ExternalName; n != "" {
		return "forwarded to " + n + " (ExternalName)"
	}
	var parts []string
	for _, e := range route.Backend.Endpoints {
		s := e.Addr.String()
		if e.Pod.Name != "" {
			s += " (pod " + e.Pod.String() + ")"
		}
		parts = append(parts, s)
	}
	return fmt.Sprintf("straight to one of %d pods: %s", len(parts), strings.Join(parts, ", "))
}

func (w *World) certificate(host string) []packet.Step {
	c := w.Table.Certificate(host)
	if c == nil {
		return []packet.Step{{Where: "tls", What: "no certificate for " + host + ": the default one is shown, which clients refuse"}}
	}
	return []packet.Step{{Where: "tls", What: "certificate of Secret " + c.Secret.String()}}
}
