// Package random makes small clusters, node settings and packets out of a source of
// random numbers, for tests that hold for every cluster. Names and addresses come from
// small pools, so that things collide, move and repeat.
package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeName is the node all settings are for.
const NodeName = "node1"

// Cluster makes some Services with their EndpointSlices.
func Cluster(r *rand.Rand) model.Objects {
	var o model.Objects
	for i := range 1 + r.IntN(8) {
		addService(r, &o, i)
	}
	return o
}

// Change returns o with one to three Services made anew, added or removed; everything
// else is shared with o.
func Change(r *rand.Rand, o model.Objects) model.Objects {
	o.Services, o.EndpointSlices = slices.Clone(o.Services), slices.Clone(o.EndpointSlices)
	for range 1 + r.IntN(3) {
		i := r.IntN(9)
		name := serviceName(i)
		o.Services = slices.DeleteFunc(o.Services, func(s *corev1.Service) bool { return s.Name == name })
		o.EndpointSlices = slices.DeleteFunc(o.EndpointSlices, func(s *discoveryv1.EndpointSlice) bool {
			return s.Labels[discoveryv1.LabelServiceName] == name
		})
		if r.IntN(4) > 0 {
			addService(r, &o, i)
		}
	}
	return o
}

func serviceName(i int) string { return fmt.Sprintf("svc%d", i) }

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func addService(r *rand.Rand, o *model.Objects, i int) {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(i), Namespace: "ns", UID: types.UID(serviceName(i))},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}
	vip := i
	if chance(r, 10) {
		vip = r.IntN(9) // somebody else's, perhaps
	}
	s.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.0.%d", vip+1)}
	if chance(r, 40) {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprintf("fd00:96::%d", vip+1))
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	addPorts(r, s)
	addPolicies(r, s)
	addOutside(r, s)
	o.Services = append(o.Services, s)
	o.EndpointSlices = append(o.EndpointSlices, endpoints(r, s, false))
	if len(s.Spec.ClusterIPs) > 1 {
		o.EndpointSlices = append(o.EndpointSlices, endpoints(r, s, true))
	}
}

func addPorts(r *rand.Rand, s *corev1.Service) {
	for k := range 1 + r.IntN(3) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", k), Port: int32(80 + r.IntN(3)),
			Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[r.IntN(4)],
		})
	}
}

func addPolicies(r *rand.Rand, s *corev1.Service) {
	if chance(r, 30) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
	if chance(r, 40) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if chance(r, 30) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		seconds := int32(60 * (1 + r.IntN(3)))
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// addOutside gives a Service node ports, external and load balancer addresses.
func addOutside(r *rand.Rand, s *corev1.Service) {
	if chance(r, 30) {
		s.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", 1+r.IntN(4)), fmt.Sprintf("2001:db8:51::%d", 1+r.IntN(4))}
	}
	if chance(r, 50) {
		return
	}
	s.Spec.Type = corev1.ServiceTypeNodePort
	for k := range s.Spec.Ports {
		s.Spec.Ports[k].NodePort = int32(30000 + r.IntN(12))
	}
	if chance(r, 50) {
		return
	}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for range 1 + r.IntN(2) {
		in := corev1.LoadBalancerIngress{IP: fmt.Sprintf("192.0.2.%d", 1+r.IntN(4))}
		if chance(r, 30) {
			in.IP = fmt.Sprintf("198.51.100.%d", 1+r.IntN(4)) // perhaps an external IP as well
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
	}
	if chance(r, 50) {
		all := []string{"203.0.113.0/24", "203.0.113.0/28", "203.0.113.2/32", "172.30.0.0/16", "10.244.0.0/16", "2001:db8::/32", "0.0.0.0/0", "192.0.2.1/32"}
		for range 1 + r.IntN(3) {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, all[r.IntN(len(all))])
		}
	}
}

func endpoints(r *rand.Rand, s *corev1.Service, v6 bool) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%v", s.Name, v6), Namespace: s.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if v6 {
		sl.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range s.Spec.Ports {
		port := 8000 + p.Port
		sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &port, Protocol: &p.Protocol})
	}
	for range r.IntN(6) {
		sl.Endpoints = append(sl.Endpoints, endpoint(r, v6))
	}
	return sl
}

func endpoint(r *rand.Rand, v6 bool) discoveryv1.Endpoint {
	node := 1 + r.IntN(2)
	name := fmt.Sprintf("node%d", node)
	addr := fmt.Sprintf("10.244.%d.%d", node, 1+r.IntN(5))
	if v6 {
		addr = fmt.Sprintf("fd00:244:%d::%d", node, 1+r.IntN(5))
	}
	e := discoveryv1.Endpoint{Addresses: []string{addr}}
	if chance(r, 90) {
		e.NodeName = &name
	}
	if chance(r, 20) {
		ready, serving := false, chance(r, 50)
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = &ready, &serving, &serving
	}
	return e
}

// Settings makes the settings of NodeName.
func Settings(r *rand.Rand) proxy.Config {
	p := netip.MustParsePrefix
	c := proxy.Config{
		Node: NodeName, NodeIPs: []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:30::11")},
		LocalAddrs:    []netip.Addr{netip.MustParseAddr("172.31.0.11"), netip.MustParseAddr("10.244.1.254")},
		MasqueradeBit: uint8(r.IntN(32)), MasqueradeAll: chance(r, 20), RejectUnknownPorts: chance(r, 80),
	}
	switch r.IntN(5) {
	case 0:
		c.Detector = proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: []netip.Prefix{p("10.244.0.0/16"), p("fd00:244::/32")}}
	case 1:
		c.Detector = proxy.Detector{Mode: proxy.DetectNodeCIDR, CIDRs: []netip.Prefix{p("10.244.1.0/24")}}
	case 2:
		c.Detector = proxy.Detector{Mode: proxy.DetectBridgeInterface, Interface: "cbr0"}
	case 3:
		c.Detector = proxy.Detector{Mode: proxy.DetectInterfaceNamePrefix, Interface: "veth"}
	}
	switch r.IntN(4) {
	case 0:
		c.NodePortAddresses.Primary = true
	case 1:
		c.NodePortAddresses.CIDRs = []netip.Prefix{p("172.31.0.0/16"), p("127.0.0.0/8")}
	case 2:
		c.NodePortAddresses.CIDRs = []netip.Prefix{p("fd00:30::/64")}
	}
	if c.RejectUnknownPorts && chance(r, 60) {
		c.ServiceCIDRs = []netip.Prefix{p("10.96.0.0/16"), p("fd00:96::/64")}
	}
	return c
}

// Packets makes n packets, most of them to something a plan serves.
func Packets(r *rand.Rand, plan *proxy.Plan, n int) []packet.Packet {
	var out []packet.Packet
	for range n {
		out = append(out, onePacket(r, plan))
	}
	return out
}

func onePacket(r *rand.Rand, plan *proxy.Plan) packet.Packet {
	p := packet.Packet{Proto: []packet.Protocol{packet.TCP, packet.TCP, packet.UDP, packet.SCTP}[r.IntN(4)]}
	v6 := chance(r, 30)
	to := fmt.Sprintf("10.96.0.%d", 1+r.IntN(10))
	if v6 {
		to = fmt.Sprintf("fd00:96::%d", 1+r.IntN(10))
	}
	p.Dst = netip.AddrPortFrom(netip.MustParseAddr(to), uint16(80+r.IntN(3)))
	if len(plan.Ports) > 0 && chance(r, 80) {
		sp := plan.Ports[r.IntN(len(plan.Ports))]
		p.Proto, p.Dst = sp.Proto, frontend(r, sp)
	}
	p.Src = source(r, p.Dst.Addr())
	switch {
	case slices.Contains(plan.Config.NodeIPs, p.Src) && chance(r, 70):
		p.Local = true
	case chance(r, 50):
		p.In = []string{"cbr0", "veth1", "eth0"}[r.IntN(3)]
	}
	return p
}

func frontend(r *rand.Rand, sp *proxy.ServicePort) netip.AddrPort {
	all := []netip.AddrPort{netip.AddrPortFrom(sp.ClusterIP, sp.Port)}
	for _, a := range slices.Concat(sp.ExternalIPs, sp.LoadBalancerIPs) {
		all = append(all, netip.AddrPortFrom(a, sp.Port))
	}
	if sp.NodePort != 0 {
		nodes := []string{"172.30.0.11", "172.31.0.11", "127.0.0.1", "172.30.0.12"}
		if sp.IPv6 {
			nodes = []string{"fd00:30::11", "::1"}
		}
		for _, a := range nodes {
			all = append(all, netip.AddrPortFrom(netip.MustParseAddr(a), sp.NodePort))
		}
	}
	a := all[r.IntN(len(all))]
	if !a.Addr().IsValid() { // a cluster address lost to another Service
		return netip.MustParseAddrPort("10.96.0.1:80")
	}
	return a
}

func source(r *rand.Rand, dst netip.Addr) netip.Addr {
	pool := []string{fmt.Sprintf("10.244.%d.%d", 1+r.IntN(2), 1+r.IntN(5)), "172.30.0.11", "172.31.0.11", "203.0.113.2", "203.0.113.130", "172.30.0.12"}
	if dst.Is6() {
		pool = []string{fmt.Sprintf("fd00:244:%d::%d", 1+r.IntN(2), 1+r.IntN(5)), "fd00:30::11", "2001:db8:99::2", "2001:db9::1"}
	}
	if chance(r, 8) {
		return dst
	}
	return netip.MustParseAddr(pool[r.IntN(len(pool))])
}
