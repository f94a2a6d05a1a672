package iptables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world makes random clusters, node settings and packets.
type world struct{ *rand.Rand }

func newWorld(seed uint64) world { return world{rand.New(rand.NewPCG(seed, 7))} }

func (w world) chance(percent int) bool { return w.IntN(100) < percent }

func pick[T any](w world, list ...T) T { return list[w.IntN(len(list))] }

func (w world) objects(services int) model.Objects {
	var o model.Objects
	for i := range services {
		svc := w.service(i)
		o.Services = append(o.Services, svc)
		for _, v6 := range []bool{false, true} {
			o.EndpointSlices = append(o.EndpointSlices, w.slice(svc, i, v6))
		}
	}
	return o
}

func (w world) service(i int) *corev1.Service {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = pick(w, "default", "prod"), fmt.Sprintf("svc%d", i)
	svc.Spec.Type = pick(w, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	v4, v6 := fmt.Sprintf("10.96.0.%d", i+1), fmt.Sprintf("fd00:96::%x", i+1)
	svc.Spec.ClusterIPs = pick(w, []string{v4}, []string{v4, v6}, []string{v6})
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	for p := range 1 + w.IntN(2) {
		port := corev1.ServicePort{Port: int32(80 + p), Protocol: pick(w, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)}
		if p > 0 || w.chance(50) {
			port.Name = fmt.Sprintf("p%d", p)
		}
		if svc.Spec.Type != corev1.ServiceTypeClusterIP && w.chance(85) {
			port.NodePort = int32(30000 + i*2 + p)
		}
		svc.Spec.Ports = append(svc.Spec.Ports, port)
	}
	svc.Spec.ExternalTrafficPolicy = pick(w, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	internal := pick(w, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	svc.Spec.InternalTrafficPolicy = &internal
	if w.chance(30) {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	external := []string{fmt.Sprintf("198.51.100.%d", i+1), fmt.Sprintf("2001:db8:5::%x", i+1)}
	if w.chance(40) {
		svc.Spec.ExternalIPs = external
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		w.balance(svc, i, external)
	}
	return svc
}

func (w world) balance(svc *corev1.Service, i int, external []string) {
	ips := []string{fmt.Sprintf("203.0.113.%d", i+1), fmt.Sprintf("2001:db8:7::%x", i+1)}
	if w.chance(20) {
		ips = append(ips, external[0], fmt.Sprintf("203.0.113.%d", i+101))
	}
	for _, ip := range ips {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	if w.chance(50) {
		svc.Spec.LoadBalancerSourceRanges = pick(w,
			[]string{"192.0.2.0/25"}, []string{"172.30.0.0/16", "fd00:30::/64"}, []string{"0.0.0.0/0"}, []string{"2001:db8:2::/64", "192.0.2.200/32"})
	}
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		svc.Spec.HealthCheckNodePort = int32(32000 + i)
	}
}

func (w world) slice(svc *corev1.Service, i int, v6 bool) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: svc.Namespace, Name: fmt.Sprintf("%s-%v", svc.Name, v6),
		Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}}}
	sl.AddressType = discoveryv1.AddressTypeIPv4
	if v6 {
		sl.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range svc.Spec.Ports {
		number := p.Port + 8000
		sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &p.Protocol})
	}
	for range w.IntN(5) {
		node := 1 + w.IntN(3)
		addr := fmt.Sprintf("10.244.%d.%d", node, 1+w.IntN(200))
		if v6 {
			addr = fmt.Sprintf("fd00:244:%d::%x", node, 1+w.IntN(200))
		}
		name := fmt.Sprintf("node%d", node)
		ready, terminating := w.chance(70), w.chance(20)
		serving := ready || w.chance(60)
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &name,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}})
	}
	return sl
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func (w world) config() proxy.Config {
	cfg := proxy.Config{
		Node: "node1", NodeIPs: addrs("172.30.0.11", "fd00:30::11"),
		LocalAddrs:    addrs("192.168.7.1", "10.244.1.1", "203.0.113.1", "2001:db8:7::1", "fd00:7::1"),
		MasqueradeBit: 14, MasqueradeAll: w.chance(15), LocalhostNodePorts: w.chance(75),
	}
	cfg.Detector = pick(w, proxy.Detector{},
		proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: prefixes("10.244.0.0/16", "fd00:244::/32")},
		proxy.Detector{Mode: proxy.DetectNodeCIDR, CIDRs: prefixes("10.244.1.0/24")},
		proxy.Detector{Mode: proxy.DetectBridgeInterface, Interface: "cni0"},
		proxy.Detector{Mode: proxy.DetectInterfaceNamePrefix, Interface: "cali"})
	cfg.NodePortAddresses = pick(w, proxy.NodePortAddresses{}, proxy.NodePortAddresses{},
		proxy.NodePortAddresses{Primary: true},
		proxy.NodePortAddresses{CIDRs: prefixes("192.168.0.0/16")},
		proxy.NodePortAddresses{CIDRs: prefixes("127.0.0.0/8", "fd00:30::/64")},
		proxy.NodePortAddresses{CIDRs: prefixes("0.0.0.0/0", "fd00:7::/64")})
	return cfg
}

// packet aims at something that is there, mostly, from everywhere. Packets from others
// to loopback are left out: the kernel drops them before any rule unless route_localnet
// is on, and then the rules are kube-proxy's.
func (w world) packet(plan *proxy.Plan) packet.Packet {
	v6 := w.chance(40)
	var pkt packet.Packet
	pkt.Proto = pick(w, packet.TCP, packet.UDP, packet.SCTP)
	pkt.Dst = w.destination(plan, v6, &pkt.Proto)
	if w.chance(25) {
		pkt.Local = true
		pkt.Src = pick(w, localAddrs(plan.Config, v6)...)
		if pkt.Dst.Addr().IsLoopback() { // else the rule the kubelet shares drops it
			pkt.Src = pkt.Dst.Addr()
		}
		return pkt
	}
	pkt.In = pick(w, "eth0", "cni0", "cali12ab")
	if v6 {
		pkt.Src = pick(w, addrs("2001:db8:2::5", "2001:db8:9::1", "fd00:244:1::7", "fd00:244:2::9", "fd00:30::12")...)
	} else {
		pkt.Src = pick(w, addrs("192.0.2.5", "192.0.2.200", "192.0.2.201", "10.244.1.7", "10.244.2.9", "172.30.0.12")...)
	}
	if ep, ok := w.endpoint(plan, v6); ok && w.chance(30) {
		pkt.Src = ep
	}
	return pkt
}

func localAddrs(cfg proxy.Config, v6 bool) []netip.Addr {
	out := addrs("127.0.0.1")
	if v6 {
		out = addrs("::1")
	}
	for _, a := range append(cfg.NodeIPs, cfg.LocalAddrs...) {
		if a.Is6() == v6 {
			out = append(out, a)
		}
	}
	return out
}

func (w world) endpoint(plan *proxy.Plan, v6 bool) (netip.Addr, bool) {
	for range 10 {
		if len(plan.Ports) == 0 {
			break
		}
		sp := plan.Ports[w.IntN(len(plan.Ports))]
		if sp.IPv6 == v6 && len(sp.Cluster) > 0 {
			return sp.Cluster[w.IntN(len(sp.Cluster))].Addr.Addr(), true
		}
	}
	return netip.Addr{}, false
}

func (w world) destination(plan *proxy.Plan, v6 bool, proto *packet.Protocol) netip.AddrPort {
	for range 20 {
		sp := plan.Ports[w.IntN(len(plan.Ports))]
		if sp.IPv6 != v6 {
			continue
		}
		if w.chance(90) {
			*proto = sp.Proto
		}
		list := append(append(addrs(), sp.ExternalIPs...), sp.LoadBalancerIPs...)
		if sp.ClusterIP.IsValid() {
			list = append(list, sp.ClusterIP)
		}
		if sp.NodePort != 0 && (w.chance(40) || len(list) == 0) {
			to := pick(w, localAddrs(plan.Config, v6)...)
			return netip.AddrPortFrom(to, sp.NodePort)
		}
		port := sp.Port
		if w.chance(5) {
			port = 32000 + uint16(w.IntN(8))
		}
		if len(list) > 0 {
			return netip.AddrPortFrom(pick(w, list...), port)
		}
	}
	return netip.AddrPortFrom(localAddrs(plan.Config, v6)[0], 4242)
}

func (w world) plan(prev *proxy.Plan, o model.Objects, cfg proxy.Config) *proxy.Plan {
	snap, _ := model.Build(nil, o)
	plan, _ := proxy.New(prev, snap, cfg)
	return plan
}

// TestTraceIsAnswer: the rules say of every packet what the plan says.
func TestTraceIsAnswer(t *testing.T) {
	fates := map[packet.Action]int{}
	for seed := range uint64(200) {
		w := newWorld(seed)
		cfg := w.config()
		plan := w.plan(nil, w.objects(2+w.IntN(8)), cfg)
		prog := Compile(nil, plan, Options{Liberal: w.chance(30), Counters: w.chance(30)})
		for range 60 {
			pkt := w.packet(plan)
			if !pkt.Local && pkt.Dst.Addr().IsLoopback() {
				continue
			}
			want := plan.Answer(pkt)
			got := prog.Trace(pkt, localOf(cfg))
			fates[want.Action]++
			if got.Equal(want) {
				continue
			}
			t.Fatalf("seed %d: %s (in %q, local %v)\nrules: %s\nplan:  %s\n%v\n%v\n%+v\n%s",
				seed, pkt, pkt.In, pkt.Local, got, want, got.Steps, want.Steps, cfg, plan.Text())
		}
	}
	for _, a := range []packet.Action{packet.Forward, packet.Reject, packet.Drop, packet.Pass} {
		if fates[a] < 100 {
			t.Errorf("only %d packets with fate %s: the generator does not reach it", fates[a], a)
		}
	}
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
