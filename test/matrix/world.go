package matrix

import (
	"fmt"
	"net/netip"

	"fairway/packet"
	"fairway/proxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	nodeName   = "node1"
	bridgeName = "cbr0"
	podPrefix  = "pod"
)

// addresses are who has which, in both families.
type addresses struct{ v4, v6 string }

func node() addresses      { return addresses{"172.30.0.11", "fd00:30::11"} }
func second() addresses    { return addresses{"172.31.0.11", "fd00:31::11"} }
func otherNode() addresses { return addresses{"172.30.0.12", "fd00:30::12"} }
func here() addresses      { return addresses{"10.244.1.5", "fd00:244:1::5"} }
func there() addresses     { return addresses{"10.244.2.7", "fd00:244:2::7"} }
func localPod() addresses  { return addresses{"10.244.1.9", "fd00:244:1::9"} }
func remotePod() addresses { return addresses{"10.244.2.9", "fd00:244:2::9"} }
func client() addresses    { return addresses{"203.0.113.2", "2001:db8:113::2"} }

func (a addresses) both() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(a.v4), netip.MustParseAddr(a.v6)}
}

// variant is what a Service of the matrix is; cells with the same share the Service.
type variant struct {
	state                                State
	internalLocal, externalLocal, sticky bool
	internalOnly                         bool
	ranges                               Dest // Admitted, Refused, or 0 for none
}

func (c Cell) variant() variant {
	v := variant{state: c.State, internalLocal: c.InternalLocal, externalLocal: c.ExternalLocal, sticky: c.Sticky, internalOnly: c.Dest == InternalOnly}
	if c.Dest == Admitted || c.Dest == Refused {
		v.ranges = c.Dest
	}
	return v
}

// port is the Service's; its NodePort and its endpoints' port tell Services apart.
const port = 80

func clusterIP(i int) addresses {
	return addresses{fmt.Sprintf("10.96.%d.%d", i/200, 1+i%200), fmt.Sprintf("fd00:96::%d:%d", i/200, 1+i%200)}
}

func balancerIP(i int) addresses {
	return addresses{fmt.Sprintf("192.0.%d.%d", 2+i/200, 1+i%200), fmt.Sprintf("2001:db8:2::%d:%d", i/200, 1+i%200)}
}

func externalIP(i int) addresses {
	return addresses{fmt.Sprintf("198.51.%d.%d", 100+i/200, 1+i%200), fmt.Sprintf("2001:db8:51::%d:%d", i/200, 1+i%200)}
}

func nodePort(i int) uint16   { return uint16(30000 + i) }
func targetPort(i int) uint16 { return uint16(8000 + i) }

// service makes the i-th Service: one port number under every protocol, dual-stack.
func (v variant) service(i int) *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "matrix", Name: fmt.Sprintf("svc%d", i), UID: types.UID(fmt.Sprintf("uid%d", i))},
	}
	ip := clusterIP(i)
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, ip.v4, []string{ip.v4, ip.v6}
	for _, proto := range protocols() {
		p := corev1.ServicePort{Name: string(proto), Port: port, Protocol: protocolOf(proto)}
		if !v.internalOnly {
			p.NodePort = int32(nodePort(i))
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if v.internalLocal {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
	if v.sticky {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if v.internalOnly {
		return s
	}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	if v.externalLocal {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	ext, lb := externalIP(i), balancerIP(i)
	s.Spec.ExternalIPs = []string{ext.v4, ext.v6}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lb.v4}, {IP: lb.v6}}
	switch v.ranges {
	case Admitted:
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "10.244.0.0/16", " 172.30.0.0/15", "2001:db8:113::/48", "fd00::/16"}
	case Refused:
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.114.0/24", "2001:db8:114::/48"}
	}
	return s
}

func protocolOf(p packet.Protocol) corev1.Protocol {
	return map[packet.Protocol]corev1.Protocol{packet.TCP: corev1.ProtocolTCP, packet.UDP: corev1.ProtocolUDP, packet.SCTP: corev1.ProtocolSCTP}[p]
}

// slices makes the Service's EndpointSlices, one per family.
func (v variant) slices(i int) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		sl := &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "matrix", Name: fmt.Sprintf("svc%d-%s", i, family),
				Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc%d", i)}},
			AddressType: family,
		}
		for _, proto := range protocols() {
			n, name, p := int32(targetPort(i)), string(proto), protocolOf(proto)
			sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &name, Port: &n, Protocol: &p})
		}
		for _, e := range v.state.endpoints() {
			sl.Endpoints = append(sl.Endpoints, e.object(family == discoveryv1.AddressTypeIPv6))
		}
		out = append(out, sl)
	}
	return out
}

// endpoint is one of at most two of a Service.
type endpoint struct {
	local                       bool
	ready, serving, terminating bool
	zone, node                  string // hints
}

func (s State) endpoints() []endpoint {
	ready := func(local bool) endpoint { return endpoint{local: local, ready: true, serving: true} }
	ending := func(local, serving bool) endpoint {
		return endpoint{local: local, serving: serving, terminating: true}
	}
	hinted := func(local bool, zone, node string) endpoint {
		e := ready(local)
		e.zone, e.node = zone, node
		return e
	}
	switch s {
	case BothReady:
		return []endpoint{ready(true), ready(false)}
	case OnlyThere:
		return []endpoint{ready(false)}
	case OnlyHere:
		return []endpoint{ready(true)}
	case BothTerminating:
		return []endpoint{ending(true, true), ending(false, true)}
	case HereTerminating:
		return []endpoint{ending(true, true), ready(false)}
	case NoneServing:
		return []endpoint{ending(true, false), {}}
	case HintedZone:
		return []endpoint{hinted(true, "zone-b", ""), hinted(false, "zone-a", "")}
	case HintedNode:
		return []endpoint{hinted(true, "zone-a", nodeName), hinted(false, "zone-a", "node2")}
	case HalfHinted:
		return []endpoint{ready(true), hinted(false, "zone-a", "")}
	}
	return nil
}

func (e endpoint) object(v6 bool) discoveryv1.Endpoint {
	at, on := there(), "node2"
	if e.local {
		at, on = here(), nodeName
	}
	out := discoveryv1.Endpoint{Addresses: []string{at.v4}, NodeName: &on,
		Conditions: discoveryv1.EndpointConditions{Ready: &e.ready, Serving: &e.serving, Terminating: &e.terminating}}
	if v6 {
		out.Addresses = []string{at.v6}
	}
	if e.zone == "" && e.node == "" {
		return out
	}
	out.Hints = &discoveryv1.EndpointHints{}
	if e.zone != "" {
		out.Hints.ForZones = []discoveryv1.ForZone{{Name: e.zone}}
	}
	if e.node != "" {
		out.Hints.ForNodes = []discoveryv1.ForNode{{Name: e.node}}
	}
	return out
}

// config makes the node's settings.
func (n Node) config() proxy.Config {
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	c := proxy.Config{
		Node: nodeName, NodeIPs: node().both(), LocalAddrs: second().both(), MasqueradeBit: 14, MasqueradeAll: n.MasqueradeAll,
		LocalhostNodePorts: true, RejectUnknownPorts: true, ServiceCIDRs: prefixes("10.96.0.0/16", "fd00:96::/64"),
	}
	switch n.Detect {
	case DetectClusterCIDR:
		c.Detector = proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: prefixes("10.244.0.0/16", "fd00:244::/32")}
	case DetectNodeCIDR:
		c.Detector = proxy.Detector{Mode: proxy.DetectNodeCIDR, CIDRs: prefixes("10.244.1.0/24", "fd00:244:1::/64")}
	case DetectNodeCIDR4:
		c.Detector = proxy.Detector{Mode: proxy.DetectNodeCIDR, CIDRs: prefixes("10.244.1.0/24")}
	case DetectBridge:
		c.Detector = proxy.Detector{Mode: proxy.DetectBridgeInterface, Interface: bridgeName}
	case DetectPrefix:
		c.Detector = proxy.Detector{Mode: proxy.DetectInterfaceNamePrefix, Interface: podPrefix}
	}
	switch n.NodePorts {
	case Primary:
		c.NodePortAddresses.Primary = true
	case Second:
		c.NodePortAddresses.CIDRs = prefixes("172.31.0.0/16", "fd00:31::/64")
	case SecondIPv6:
		c.NodePortAddresses.CIDRs = prefixes("fd00:31::/64")
	case PrimaryAndLoopback:
		c.NodePortAddresses.CIDRs = prefixes("172.30.0.0/16", "127.0.0.0/8")
	}
	return c
}

// packet is what the cell sends when its Service is the i-th.
func (c Cell) packet(i int) packet.Packet {
	p := packet.Packet{Proto: c.Proto}
	c.from(&p)
	to := func(a addresses, port uint16) {
		p.Dst = netip.AddrPortFrom(c.of(a.v4, a.v6), port)
	}
	switch c.Dest {
	case ClusterIP, InternalOnly:
		to(clusterIP(i), port)
	case NodePortPrimary:
		to(node(), nodePort(i))
	case NodePortSecond:
		to(second(), nodePort(i))
	case NodePortLoopback:
		to(addresses{"127.0.0.1", "::1"}, nodePort(i))
	case ExternalIP:
		to(externalIP(i), port)
	case LoadBalancer, Admitted, Refused:
		to(balancerIP(i), port)
	case UnknownPort:
		to(clusterIP(i), port+1)
	case UnknownExternalPort:
		to(externalIP(i), port+1)
	case Unallocated:
		to(addresses{"10.96.200.200", "fd00:96::200:200"}, port)
	}
	return p
}

func (c Cell) from(p *packet.Packet) {
	src := map[Source]addresses{
		LocalPod: localPod(), RemotePod: remotePod(), NodeItself: node(), NodeSecondAddress: second(), OtherNode: otherNode(),
		OutsideClient: client(), EndpointItself: there(), NodeLoopback: {"127.0.0.1", "::1"},
	}[c.Source]
	onPod := c.Source == LocalPod
	if ends := c.State.endpoints(); c.Source == EndpointItself && ends[0].local {
		src, onPod = here(), true
	}
	p.Src = c.of(src.v4, src.v6)
	switch {
	case c.Source == NodeItself || c.Source == NodeSecondAddress || c.Source == NodeLoopback:
		p.Local, p.OnNode = true, true
	case onPod:
		p.In, p.OnNode = podPrefix+"0", true
		if c.Node.Detect == DetectBridge {
			p.In = bridgeName
		}
	case c.Source == OutsideClient:
		p.In = "client"
	default:
		p.In = "far0"
	}
}
