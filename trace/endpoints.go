package trace

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
)

// PodPort is a port that a container of a Pod declares.
type PodPort struct {
	Name  string
	Port  uint16
	Proto packet.Protocol
}

// noEndpoints says why a ServicePort has no endpoint that could be used.
func (w *World) noEndpoints(sp *proxy.ServicePort) string {
	svc := w.Snap.Service(sp.Service)
	if svc == nil {
		return fmt.Sprintf("Service %s has no endpoints", sp.Service)
	}
	for _, p := range svc.Ports {
		if p.Name == sp.PortName && p.Protocol == sp.Proto {
			return w.unusable(svc, p, func(e *model.Endpoint) bool { return e.Addr.Is6() == sp.IPv6 })
		}
	}
	return fmt.Sprintf("Service %s has no endpoints", sp.Service)
}

// unusable says why none of the endpoints that fit serves a port of the Service.
func (w *World) unusable(svc *model.Service, p model.Port, fits func(*model.Endpoint) bool) string {
	if len(svc.Endpoints) == 0 {
		return w.none(svc, p)
	}
	var left []*model.Endpoint
	for _, e := range svc.Endpoints {
		if fits(e) {
			left = append(left, e)
		}
	}
	if len(left) == 0 {
		return fmt.Sprintf("Service %s has no endpoint of this address family, only of the other", svc.Name)
	}
	left = slices.DeleteFunc(left, func(e *model.Endpoint) bool { return e.Unproxied })
	if len(left) == 0 {
		return fmt.Sprintf("the EndpointSlices of Service %s carry the label service.kubernetes.io/headless: no proxy forwards to them", svc.Name)
	}
	if !slices.ContainsFunc(left, func(e *model.Endpoint) bool { return e.PortFor(p.Name, p.Protocol) != 0 }) {
		return fmt.Sprintf("%s of Service %s%s", portless(left, p), svc.Name, w.noSuchTarget(left, p))
	}
	return fmt.Sprintf("none of the endpoints of Service %s is ready", svc.Name)
}

// portless says that endpoints there are have no port of the Service port's name.
func portless(list []*model.Endpoint, p model.Port) string {
	var names, protos []string
	for _, e := range list {
		for _, ep := range e.Ports {
			if n := portName(ep.Name); !slices.Contains(names, n) {
				names = append(names, n)
			}
			if ep.Name == p.Name && !slices.Contains(protos, string(ep.Protocol)) {
				protos = append(protos, string(ep.Protocol))
			}
		}
	}
	slices.Sort(names)
	switch {
	case len(protos) > 0:
		return fmt.Sprintf("EndpointSlice port %s is for %s, not for %s: none", portName(p.Name), strings.Join(protos, " and "), p.Protocol)
	case len(names) == 0:
		return fmt.Sprintf("no EndpointSlice port is named %s (there are none)", portName(p.Name))
	}
	return fmt.Sprintf("no EndpointSlice port is named %s (there are: %s)", portName(p.Name), strings.Join(names, ", "))
}

func portName(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// noSuchTarget says that a targetPort is the name of no container port, where the Pods
// are known.
func (w *World) noSuchTarget(list []*model.Endpoint, p model.Port) string {
	for _, e := range list {
		if e.Pod.Name != "" {
			if s := w.targetless(e.Pod, p); s != "" {
				return s
			}
		}
	}
	return ""
}

func (w *World) targetless(pod model.Name, p model.Port) string {
	if _, err := strconv.Atoi(p.TargetPort); err == nil || p.TargetPort == "" || w.PodPorts == nil {
		return ""
	}
	declared, known := w.PodPorts(pod)
	if !known || slices.ContainsFunc(declared, func(d PodPort) bool { return d.Name == p.TargetPort && d.Proto == p.Protocol }) {
		return ""
	}
	return fmt.Sprintf("; targetPort %s is the name of no container port of pod %s (it declares %s)", p.TargetPort, pod, podPorts(declared))
}

// none says why a Service has no endpoints at all, as far as the Pods at hand tell.
func (w *World) none(svc *model.Service, p model.Port) string {
	if len(svc.Selector) == 0 {
		return fmt.Sprintf("Service %s has no selector and no EndpointSlice gives it endpoints", svc.Name)
	}
	if len(w.Snap.Pods) == 0 {
		return fmt.Sprintf("Service %s has no endpoints", svc.Name)
	}
	sel := model.Selector{MatchLabels: svc.Selector}
	matching, target := 0, ""
	for _, pod := range w.Snap.Pods {
		if pod.Name.Namespace == svc.Name.Namespace && sel.Matches(pod.Labels) {
			if matching++; target == "" {
				target = w.targetless(pod.Name, p)
			}
		}
	}
	return fmt.Sprintf("Service %s has no endpoints; its selector %s matches %d Pods in namespace %s%s", svc.Name, labels(svc.Selector), matching, svc.Name.Namespace, target)
}

func labels(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

// undeclared are lines about endpoints on ports their Pods do not declare: a declaration
// opens nothing and its absence closes nothing, but a number may be a slip.
func (w *World) undeclared(ends []netip.AddrPort, pod func(netip.AddrPort) model.Name, proto packet.Protocol) []packet.Step {
	var out []packet.Step
	if w.PodPorts == nil {
		return nil
	}
	for _, e := range ends {
		name := pod(e)
		if name.Name == "" {
			continue
		}
		declared, known := w.PodPorts(name)
		if !known || len(declared) == 0 || slices.ContainsFunc(declared, func(d PodPort) bool { return d.Port == e.Port() && d.Proto == proto }) {
			continue
		}
		out = append(out, packet.Step{Where: "pod " + name.String(),
			What: fmt.Sprintf("whether something listens on %d there was not tried; the Pod declares %s", e.Port(), podPorts(declared))})
	}
	return out
}

func podPorts(declared []PodPort) string {
	var out []string
	for _, d := range declared {
		s := strconv.Itoa(int(d.Port))
		if d.Proto != packet.TCP {
			s += "/" + string(d.Proto)
		}
		if d.Name != "" {
			s += " (" + d.Name + ")"
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
