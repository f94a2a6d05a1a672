package trace

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"fairway/ingress"
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
		var inside bool
		if addr, inside = w.resolve(r, from, u.Hostname()); !inside {
			return w.outsideName(r, from, u, port)
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
// the host, people mean that; else the request leaves the cluster.
func (w *World) outsideName(r *Report, from From, u *url.URL, port uint16) error {
	last := &r.Parts[len(r.Parts)-1]
	if last.Result == unresolved || r.Arrives {
		return nil // an ExternalName leads away
	}
	if route, _ := w.Table.Match(u.Host, u.EscapedPath()); from.outside() || route != nil && route.Host != "" {
		if svc := w.Snap.Service(w.IngressService); svc != nil {
			last.Result += "; taken to be the Ingress address here"
			for _, in := range svc.Ingress {
				if _, ok := from.Addr(in.IP.Is6()); ok && in.IP.IsValid() {
					if v := w.packet(r, from, netip.AddrPortFrom(in.IP, port), packet.TCP); v.Action != packet.Forward {
						return nil
					}
					break
				}
			}
		}
		w.route(r, u)
		return nil
	}
	r.Arrives = true
	last.Result += "; the request leaves the cluster"
	r.Result = last.Result
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
