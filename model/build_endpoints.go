package model

import (
	"net/netip"
	"slices"

	"fairway/packet"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// readEndpoints joins the slices of the Service. An address in two slices (as while an
// endpoint moves between them) is one endpoint; the later slice adds its ports and the
// better conditions win, so a move is never a removal.
func (s *Service) readEndpoints(sl []*discoveryv1.EndpointSlice, legacy *corev1.Endpoints) {
	for _, slice := range sl {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			s.issue("", "UnsupportedAddressType", "EndpointSlice %s has address type FQDN, which nobody can forward to; it is left out", slice.Name)
			continue
		}
		ports := slicePorts(slice)
		for i := range slice.Endpoints {
			s.readEndpoint(slice, &slice.Endpoints[i], ports)
		}
	}
	if len(sl) == 0 && legacy != nil {
		s.readLegacy(legacy)
	}
	s.sortEndpoints()
	s.mergeEndpoints()
}

func slicePorts(slice *discoveryv1.EndpointSlice) []EndpointPort {
	out := make([]EndpointPort, 0, len(slice.Ports))
	for _, p := range slice.Ports {
		ep := EndpointPort{Protocol: packet.TCP}
		if p.Name != nil {
			ep.Name = *p.Name
		}
		if p.Protocol != nil {
			proto, err := packet.ParseProtocol(string(*p.Protocol))
			if err != nil {
				continue
			}
			ep.Protocol = proto
		}
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue // no number: the endpoint does not serve this port
		}
		ep.Port = uint16(*p.Port)
		out = append(out, ep)
	}
	return out
}

func (s *Service) readEndpoint(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ports []EndpointPort) {
	if len(e.Addresses) == 0 {
		return
	}
	addr, err := parseAddr(e.Addresses[0]) // more than one address is reserved (discovery/v1)
	if err != nil {
		s.issue("", "InvalidEndpoint", "EndpointSlice %s: address %q is not an IP address and is left out", slice.Name, e.Addresses[0])
		return
	}
	if !s.usable(addr, "EndpointSlice "+slice.Name) {
		return
	}
	ep := &Endpoint{
		Addr: addr, Ports: ports,
		// nil ready and serving mean true, nil terminating false (discovery/v1).
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	_, ep.Unproxied = slice.Labels[corev1.IsHeadlessService]
	if e.NodeName != nil {
		ep.Node = *e.NodeName
	}
	if e.Zone != nil {
		ep.Zone = *e.Zone
	}
	if e.Hostname != nil {
		ep.Hostname = *e.Hostname
	}
	if t := e.TargetRef; t != nil && t.Kind == "Pod" {
		ep.Pod = Name{t.Namespace, t.Name}
		if ep.Pod.Namespace == "" {
			ep.Pod.Namespace = slice.Namespace
		}
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			ep.HintZones = append(ep.HintZones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			ep.HintNodes = append(ep.HintNodes, n.Name)
		}
	}
	s.Endpoints = append(s.Endpoints, ep)
}

// usable refuses addresses no other machine can mean (the API server's own rule for
// EndpointSlice addresses): forwarding to 127.0.0.1 would open the node's own services.
func (s *Service) usable(a netip.Addr, where string) bool {
	switch {
	case a.IsUnspecified(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsMulticast():
		s.issue("", "InvalidEndpoint", "%s: address %s is loopback, link-local, multicast or unspecified and is left out; use the address other nodes reach it by", where, a)
		return false
	}
	return true
}

// readLegacy reads a core/v1 Endpoints object, which files may carry alone.
func (s *Service) readLegacy(eps *corev1.Endpoints) {
	for _, sub := range eps.Subsets {
		var ports []EndpointPort
		for _, p := range sub.Ports {
			proto, err := packet.ParseProtocol(string(p.Protocol))
			if p.Protocol == "" {
				proto, err = packet.TCP, nil
			}
			if err == nil && p.Port > 0 && p.Port < 65536 {
				ports = append(ports, EndpointPort{Name: p.Name, Protocol: proto, Port: uint16(p.Port)})
			}
		}
		for _, a := range sub.Addresses {
			s.readLegacyAddress(eps, a, ports, true)
		}
		for _, a := range sub.NotReadyAddresses {
			s.readLegacyAddress(eps, a, ports, false)
		}
	}
}

func (s *Service) readLegacyAddress(eps *corev1.Endpoints, a corev1.EndpointAddress, ports []EndpointPort, ready bool) {
	addr, err := parseAddr(a.IP)
	if err != nil {
		s.issue("", "InvalidEndpoint", "Endpoints %s: address %q is not an IP address and is left out", eps.Name, a.IP)
		return
	}
	if !s.usable(addr, "Endpoints "+eps.Name) {
		return
	}
	ready = ready || s.PublishNotReady
	ep := &Endpoint{Addr: addr, Ports: ports, Hostname: a.Hostname, Ready: ready, Serving: ready}
	if a.NodeName != nil {
		ep.Node = *a.NodeName
	}
	if t := a.TargetRef; t != nil && t.Kind == "Pod" {
		ep.Pod = Name{eps.Namespace, t.Name}
	}
	s.Endpoints = append(s.Endpoints, ep)
}

// mergeEndpoints folds equal neighbours of the sorted list.
func (s *Service) mergeEndpoints() {
	out := s.Endpoints[:0]
	for _, e := range s.Endpoints {
		if len(out) == 0 || out[len(out)-1].Addr != e.Addr || !compatible(out[len(out)-1], e) {
			out = append(out, e)
			continue
		}
		last := *out[len(out)-1]
		last.Ports = mergePorts(last.Ports, e.Ports)
		last.Ready = last.Ready || e.Ready
		last.Serving = last.Serving || e.Serving
		last.Terminating = last.Terminating && e.Terminating
		last.Unproxied = last.Unproxied && e.Unproxied
		last.complete(e)
		out[len(out)-1] = &last
	}
	s.Endpoints = out
}

// complete takes from another entry of the same address what this one does not say.
func (e *Endpoint) complete(o *Endpoint) {
	if e.Node == "" {
		e.Node, e.Zone = o.Node, o.Zone
	}
	if e.Pod == (Name{}) {
		e.Pod, e.Hostname = o.Pod, o.Hostname
	}
	if len(e.HintZones)+len(e.HintNodes) == 0 {
		e.HintZones, e.HintNodes = o.HintZones, o.HintNodes
	}
}

// compatible tells whether two entries of one address can be one endpoint: they must
// not give different numbers to one port name (manual slices may), and where their ports
// are not the same, conditions of the one say nothing of the other's ports.
func compatible(a, b *Endpoint) bool {
	same := a.Ready == b.Ready && a.Serving == b.Serving && a.Terminating == b.Terminating
	if !same && !slices.Equal(a.Ports, b.Ports) {
		return false
	}
	for _, p := range b.Ports {
		if n := a.PortFor(p.Name, p.Protocol); n != 0 && n != p.Port {
			return false
		}
	}
	return true
}

func mergePorts(a, b []EndpointPort) []EndpointPort {
	out := append([]EndpointPort(nil), a...)
	for _, p := range b {
		if !containsPort(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func containsPort(list []EndpointPort, p EndpointPort) bool {
	for _, q := range list {
		if q == p {
			return true
		}
	}
	return false
}
