package kernel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/test/netlab"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzNFTables and the two below: whatever Services and EndpointSlices say, nothing
// panics, and the kernel takes every batch made of them, one after another.
func FuzzNFTables(f *testing.F) { fuzzMode(f, nftablesMode()) }

func FuzzIPTablesNFT(f *testing.F) { fuzzMode(f, iptablesMode(kernel.NFTVariant)) }

func FuzzIPTablesLegacy(f *testing.F) { fuzzMode(f, iptablesMode(kernel.LegacyVariant)) }

func fuzzMode(f *testing.F, m mode) {
	if err := netlab.Missing(); err != nil {
		f.Skip(err)
	}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 21))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	lab, err := netlab.New(netlab.Layout{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(lab.Close)
	var b loop.Backend
	f.Fuzz(func(t *testing.T, data []byte) {
		if b == nil {
			b = m.open(t, lab.Node)
		}
		d := &dice{data: data}
		var snap *model.Snapshot
		var plan *proxy.Plan
		for range 3 {
			cfg := d.settings()
			m.settings(&cfg)
			snap, _ = model.Build(snap, d.objects())
			plan, _ = proxy.New(plan, snap, cfg)
			problems, err := b.Apply(context.Background(), plan)
			if err != nil || len(problems) > 0 {
				t.Fatalf("%v %v\n%s", err, problems, plan.Text())
			}
		}
	})
}

// dice makes decisions from bytes; when they are used up every decision is the first.
type dice struct{ data []byte }

func (d *dice) n(sides int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := int(d.data[0])
	d.data = d.data[1:]
	if sides > 256 && len(d.data) > 0 {
		b = b<<8 | int(d.data[0])
		d.data = d.data[1:]
	}
	return b % sides
}

func (d *dice) word(words ...string) string { return words[d.n(len(words))] }

func (d *dice) name() string {
	s := d.word("web", "a.b", "x y", "\"q\"", "é", "..", "A_B", "n\nl", "", "-j", strings.Repeat("long-", 60), "web2", "db", "{};", "$x", "`", "\\")
	if d.n(8) == 7 && len(d.data) > 4 {
		s, d.data = string(d.data[:4]), d.data[4:]
	}
	return s
}

func (d *dice) addr() string {
	return d.word("10.96.0.1", "10.96.0.2", "10.96.0.3", "fd00:96::1", "fd00:96::2", "None", "", "0.0.0.0", "255.255.255.255", "127.0.0.1",
		"224.0.0.1", "::", "::1", "::ffff:10.96.0.9", "fe80::1%eth0", "ff02::1", "172.30.0.11", "203.0.113.9", "2001:db8::9", "10.96.0.1/32", "010.1.1.1", "host")
}

func (d *dice) port() int32 {
	return []int32{80, 443, 0, -1, 1, 65535, 65536, 30000, 32767, 53, 1 << 30}[d.n(11)]
}

func (d *dice) proto() corev1.Protocol {
	return corev1.Protocol(d.word("TCP", "UDP", "SCTP", "", "tcp", "ICMP", "TCP\n"))
}

func (d *dice) list(most int, one func() string) []string {
	var out []string
	for range d.n(most + 1) {
		out = append(out, one())
	}
	return out
}

func (d *dice) objects() model.Objects {
	var o model.Objects
	for range 1 + d.n(6) {
		s := d.service()
		o.Services = append(o.Services, s)
		for range d.n(3) {
			o.EndpointSlices = append(o.EndpointSlices, d.slice(s))
		}
	}
	return o
}

func (d *dice) service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: d.word("ns", "default", "n/s", ""), Name: d.name()}}
	if d.n(3) == 1 {
		s.Annotations = map[string]string{proxy.SchedulerAnnotation: d.word("rr", "sh", "mh", "lc", "random", "", "x\ny")}
	}
	s.Spec.Type = corev1.ServiceType(d.word("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", ""))
	s.Spec.ClusterIP = d.addr()
	s.Spec.ClusterIPs = append([]string{s.Spec.ClusterIP}, d.list(2, d.addr)...)
	s.Spec.ExternalIPs = d.list(3, d.addr)
	for range d.n(4) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: d.word("", "http", "p\"", "p q"), Port: d.port(), NodePort: d.port(), Protocol: d.proto()})
	}
	if d.n(3) == 1 {
		seconds := []int32{0, -5, 1, 10800, 86400, 1 << 30}[d.n(6)]
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	local := corev1.ServiceInternalTrafficPolicy(d.word("Cluster", "Local", "x"))
	s.Spec.InternalTrafficPolicy = &local
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(d.word("Cluster", "Local", ""))
	s.Spec.HealthCheckNodePort = d.port()
	s.Spec.LoadBalancerSourceRanges = d.list(4, func() string {
		return d.word("203.0.113.0/24", "203.0.113.9/32", "0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", " 10.2.0.0/16 ", "10.0.0.1/8", "::/0", "2001:db8::/32", "x", "10.0.0.0/33", "172.30.0.0/16")
	})
	for _, ip := range d.list(3, d.addr) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return s
}

func (d *dice) slice(s *corev1.Service) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint(s.Name, d.n(3)),
		Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}}}
	out.AddressType = discoveryv1.AddressType(d.word("IPv4", "IPv6", "FQDN", ""))
	for range d.n(3) {
		port, name, proto := d.port(), d.word("", "http", "p q"), d.proto()
		p := discoveryv1.EndpointPort{Port: &port, Name: &name, Protocol: &proto}
		switch d.n(6) {
		case 3:
			p.Port = nil
		case 4:
			p.Name = nil
		case 5:
			p.Protocol = nil
		}
		out.Ports = append(out.Ports, p)
	}
	for range d.n(5) {
		yes, no := true, false
		e := discoveryv1.Endpoint{Addresses: d.list(2, func() string {
			return d.word("10.244.1.5", "10.244.1.6", "10.244.2.7", "fd00:244::5", "10.96.0.1", "0.0.0.0", "127.0.0.1", "::ffff:10.244.1.5", "x", "fe80::5%eth0", "224.0.0.5")
		})}
		e.Conditions.Ready = []*bool{nil, &yes, &no}[d.n(3)]
		e.Conditions.Serving = []*bool{nil, &yes, &no}[d.n(3)]
		e.Conditions.Terminating = []*bool{nil, &yes, &no}[d.n(3)]
		if node := d.word("", "node1", "node2"); node != "" {
			e.NodeName = &node
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

func (d *dice) settings() proxy.Config {
	c := proxy.Config{Node: "node1", MasqueradeBit: uint8(d.n(32)), MasqueradeAll: d.n(4) == 1, LocalhostNodePorts: true, RejectUnknownPorts: d.n(3) > 0}
	c.NodeIPs = addrs("172.30.0.11", "fd00:30::11")[:d.n(3)]
	switch d.n(5) {
	case 1:
		c.Detector = proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: prefixes("10.244.0.0/16", "fd00:244::/32")}
	case 2:
		c.Detector = proxy.Detector{Mode: proxy.DetectBridgeInterface, Interface: "cbr0"}
	case 3:
		c.Detector = proxy.Detector{Mode: proxy.DetectInterfaceNamePrefix, Interface: d.word("veth", "cali", "a-very-long-one")}
	}
	c.NodePortAddresses.Primary = d.n(3) == 1
	if d.n(3) == 1 {
		c.NodePortAddresses.CIDRs = prefixes("172.30.0.0/16", "127.0.0.0/8", "0.0.0.0/0", "::/0")[:1+d.n(4)]
	}
	if d.n(2) == 1 {
		c.ServiceCIDRs = prefixes("10.96.0.0/12", "fd00:96::/112")
	}
	return c
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
