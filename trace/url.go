package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"fairway/ingress"
	"fairway/model"
	"fairway/packet"
)

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
		var what found
		if addr, what = w.resolve(r, from, u.Hostname()); what != inside {
			w.outsideName(r, from, u, port, what)
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

// outsideName goes on with a URL whose name is none of the cluster's: when an Ingress has
// the host, people mean that.
func (w *World) outsideName(r *Report, from From, u *url.URL, port uint16, what found) {
	if what == nowhere || what == alias {
		return
	}
	route, _ := w.Table.Match(u.Host, u.EscapedPath())
	if hosted := route != nil && route.Host != ""; !hosted && (what == bare || !from.outside()) {
		return
	}
	r.Leaves = false
	if svc := w.Snap.Service(w.IngressService); svc != nil {
		r.Parts[len(r.Parts)-1].Result += "; taken to be the Ingress address here"
		for _, in := range svc.Ingress {
			if _, ok := from.Addr(in.IP.Is6()); ok && in.IP.IsValid() {
				if v := w.packet(r, from, netip.AddrPortFrom(in.IP, port), packet.TCP); v.Action != packet.Forward {
					return
				}
				break
			}
		}
	}
	w.route(r, u)
}

func urlPort(u *url.URL) (uint16, error) {
	switch {
	case u.Port() != "":
		return portNumber(u.String(), u.Port())
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
		r.add("ingress", steps, "503: "+w.noEndpoint(route))
	default:
		r.Arrives = true
		r.add("ingress", append(steps, w.untriedBehind(route)...), backendText(route))
	}
}

func ingressHost(u *url.URL) string {
	h, _ := ingress.NormalHost(u.Host)
	return h
}

func (w *World) noEndpoint(route *ingress.Route) string {
	b := route.Backend
	if b == nil {
		return "it has no backend"
	}
	if b.Missing != "" {
		return b.Missing
	}
	svc := w.Snap.Service(b.Service)
	if svc != nil {
		if p, err := servicePort(svc, cmp.Or(b.PortName, strconv.Itoa(int(b.PortNumber)))); err == nil {
			return w.unusable(svc, p, func(*model.Endpoint) bool { return true })
		}
	}
	return "no ready endpoint behind Service " + b.Service.String()
}

func (w *World) untriedBehind(route *ingress.Route) []packet.Step {
	pods := map[netip.AddrPort]model.Name{}
	var ends []netip.AddrPort
	for _, e := range route.Backend.Endpoints {
		ends, pods[e.Addr] = append(ends, e.Addr), e.Pod
	}
	return w.undeclared(ends, func(e netip.AddrPort) model.Name { return pods[e] }, packet.TCP)
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
