package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairway/packet"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// labelProxyName hands a Service to another proxy (KEP-2447).
const labelProxyName = "service.kubernetes.io/service-proxy-name"

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	return a.Unmap(), err
}

// parsePrefix reads a CIDR. One of IPv4 in IPv6 form (::ffff:10.0.0.0/104) is IPv4, as
// addresses are: taken for IPv6 it would restrict nobody it is meant for.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err != nil {
		return netip.Prefix{}, err
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q is more than all of IPv4", s)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func buildService(obj *corev1.Service, sl []*discoveryv1.EndpointSlice, legacy *corev1.Endpoints) *Service {
	s := &Service{
		Name: Name{obj.Namespace, obj.Name}, UID: string(obj.UID), Type: ServiceType(obj.Spec.Type),
		Selector: obj.Spec.Selector, Labels: obj.Labels, Annotations: obj.Annotations,
		Created: obj.CreationTimestamp.Time, Deleting: obj.DeletionTimestamp != nil, Finalizers: obj.Finalizers,
		LBIP:            obj.Spec.LoadBalancerIP,
		PublishNotReady: obj.Spec.PublishNotReadyAddresses, Families: obj.Spec.IPFamilies,
		object: obj, slices: sl, legacy: legacy,
	}
	_, s.HeadlessLabel = obj.Labels[corev1.IsHeadlessService]
	if s.Type == "" {
		s.Type = ClusterIP
	}
	if p := obj.Spec.IPFamilyPolicy; p != nil {
		s.FamilyPolicy = *p
	}
	if c := obj.Spec.LoadBalancerClass; c != nil {
		s.LBClass = *c
	}
	if d := obj.Spec.TrafficDistribution; d != nil {
		s.Distribution = *d
	}
	s.ExternalLocal = obj.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if p := obj.Spec.InternalTrafficPolicy; p != nil {
		s.InternalLocal = *p == corev1.ServiceInternalTrafficPolicyLocal
	}
	if obj.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.Affinity = time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
		if c := obj.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			s.Affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	s.readAddresses(obj)
	s.readPorts(obj)
	s.readStatus(obj)
	if s.Type == ExternalName {
		s.readExternalName(obj)
	}
	s.readEndpoints(sl, legacy)
	return s
}

func (s *Service) issue(field, reason, format string, args ...any) {
	s.issues = append(s.issues, s.Problem(field, reason, fmt.Sprintf(format, args...)))
}

func (s *Service) readAddresses(obj *corev1.Service) {
	ips := obj.Spec.ClusterIPs
	if len(ips) == 0 && obj.Spec.ClusterIP != "" {
		ips = []string{obj.Spec.ClusterIP}
	}
	for i, ip := range ips {
		if ip == corev1.ClusterIPNone {
			s.Headless = true
			continue
		}
		a, err := parseAddr(ip)
		if err != nil {
			s.issue(fieldIndex("spec.clusterIPs", i, ""), "InvalidAddress", "%q is not an IP address; the Service is not reachable by it", ip)
			continue
		}
		if !s.reachable(a, fieldIndex("spec.clusterIPs", i, "")) {
			continue
		}
		if at := slices.IndexFunc(s.ClusterIPs, func(o netip.Addr) bool { return o.Is6() == a.Is6() }); at >= 0 {
			s.issue(fieldIndex("spec.clusterIPs", i, ""), "InvalidAddress", "%s is left out: a Service has one address of each family, and %s is it", a, s.ClusterIPs[at])
			continue
		}
		s.ClusterIPs = append(s.ClusterIPs, a)
	}
	for i, ip := range obj.Spec.ExternalIPs {
		a, err := parseAddr(ip)
		if err != nil {
			s.issue(fieldIndex("spec.externalIPs", i, ""), "InvalidAddress", "%q is not an IP address and is left out", ip)
			continue
		}
		if s.reachable(a, fieldIndex("spec.externalIPs", i, "")) {
			s.ExternalIPs = append(s.ExternalIPs, a)
		}
	}
	for i, r := range obj.Spec.LoadBalancerSourceRanges {
		p, err := parsePrefix(r)
		if err != nil {
			s.issue(fieldIndex("spec.loadBalancerSourceRanges", i, ""), "InvalidSourceRange",
				"%q is not a CIDR and admits nobody; write it as ADDRESS/LENGTH", r)
			// Ranges nobody matches: an unreadable restriction must never open the port.
			s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(netip.IPv6Unspecified(), 128))
			p = netip.PrefixFrom(netip.IPv4Unspecified(), 32)
		}
		s.SourceRanges = append(s.SourceRanges, p)
	}
}

// reachable refuses addresses that mean something of their own on every machine (most
// the API server refuses too, but not in files and not in a status): serving 127.0.0.1
// would take over the node's own listeners.
func (s *Service) reachable(a netip.Addr, field string) bool {
	if a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		s.issue(field, "InvalidAddress", "%s is unspecified, loopback, link-local, multicast or broadcast and is left out", a)
		return false
	}
	return true
}

func (s *Service) readPorts(obj *corev1.Service) {
	if n := obj.Spec.HealthCheckNodePort; n < 0 || n > 65535 {
		s.issue("spec.healthCheckNodePort", "InvalidPort", "%d is not a port number (1 to 65535); no health check is served", n)
	} else {
		s.HealthCheckNodePort = uint16(n)
	}
	for i, p := range obj.Spec.Ports {
		proto := packet.TCP
		if p.Protocol != "" {
			var err error
			if proto, err = packet.ParseProtocol(string(p.Protocol)); err != nil {
				s.issue(fieldIndex("spec.ports", i, "protocol"), "InvalidPort", "%q is not TCP, UDP or SCTP; this port is left out", p.Protocol)
				continue
			}
		}
		if !s.portNumbers(i, p) {
			continue
		}
		port := Port{Name: p.Name, Protocol: proto, Port: uint16(p.Port), TargetPort: p.TargetPort.String(), NodePort: uint16(p.NodePort)}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		if port.TargetPort == "0" {
			port.TargetPort = fmt.Sprint(p.Port)
		}
		if at := slices.IndexFunc(s.Ports, func(o Port) bool { return o.Name == port.Name && o.Protocol == port.Protocol }); at >= 0 {
			s.issue(fieldIndex("spec.ports", i, "name"), "DuplicatePort",
				"port %d has the name and protocol of port %d; it is left out, give it a name of its own", port.Port, s.Ports[at].Port)
			continue
		}
		s.Ports = append(s.Ports, port)
	}
}

// portNumbers refuses each number that is none. A target port matters where endpoints are
// looked for by it, which is not here: the port is served all the same.
func (s *Service) portNumbers(i int, p corev1.ServicePort) bool {
	ok := true
	if p.Port < 1 || p.Port > 65535 {
		s.issue(fieldIndex("spec.ports", i, "port"), "InvalidPort", "%d is not a port number (1 to 65535); this port is left out", p.Port)
		ok = false
	}
	if p.NodePort < 0 || p.NodePort > 65535 {
		s.issue(fieldIndex("spec.ports", i, "nodePort"), "InvalidPort", "%d is not a port number (1 to 65535); this port is left out", p.NodePort)
		ok = false
	}
	if t := p.TargetPort; t.Type == intstr.Int && (t.IntVal < 0 || t.IntVal > 65535) {
		s.issue(fieldIndex("spec.ports", i, "targetPort"), "InvalidPort", "%d is not a port number (1 to 65535); endpoints have their own", t.IntVal)
	}
	return ok
}

func (s *Service) readStatus(obj *corev1.Service) {
	for _, c := range obj.Status.Conditions {
		s.Conditions = append(s.Conditions, c.Type)
	}
	for i, in := range obj.Status.LoadBalancer.Ingress {
		l := LBIngress{Hostname: in.Hostname, Proxy: in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy}
		if in.IP != "" {
			a, err := parseAddr(in.IP)
			if err != nil {
				s.issue(fieldIndex("status.loadBalancer.ingress", i, "ip"), "InvalidAddress", "%q is not an IP address and is left out", in.IP)
				continue
			}
			if !s.reachable(a, fieldIndex("status.loadBalancer.ingress", i, "ip")) {
				continue
			}
			l.IP = a
		}
		s.Ingress = append(s.Ingress, l)
	}
}

// readExternalName refuses what is no DNS name (RFC 1123), as a URL printed in a
// tutorial: a resolver could never follow it.
func (s *Service) readExternalName(obj *corev1.Service) {
	name := strings.ToLower(strings.TrimSuffix(obj.Spec.ExternalName, "."))
	switch {
	case strings.Contains(name, "://") || strings.Contains(name, "/"):
		s.issue("spec.externalName", "InvalidExternalName",
			"%q is a URL, not a DNS name, and is not served; write only the host, as in %q", obj.Spec.ExternalName, hostOf(name))
	case !validDNSName(name):
		s.issue("spec.externalName", "InvalidExternalName", "%q is not a DNS name and is not served", obj.Spec.ExternalName)
	default:
		if _, err := netip.ParseAddr(name); err == nil {
			s.issue("spec.externalName", "ExternalNameIsAddress",
				"%q looks like an IP address but is answered as a name; use a headless Service with EndpointSlices for an address", obj.Spec.ExternalName)
		}
		s.ExternalName = name
	}
}

func hostOf(url string) string {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	}
	host, _, _ := strings.Cut(url, "/")
	return host
}

func validDNSName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for _, label := range strings.Split(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		bad := func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}
		if strings.ContainsFunc(label, bad) {
			return false
		}
	}
	return true
}

func (s *Service) sortEndpoints() {
	slices.SortStableFunc(s.Endpoints, func(a, b *Endpoint) int { return a.Addr.Compare(b.Addr) })
}
