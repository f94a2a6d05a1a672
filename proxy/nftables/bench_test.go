package nftables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/nftables"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tenThousand is 10,000 Services of 10 endpoints, and the same with one endpoint of one
// of them gone.
func tenThousand(b *testing.B) (full, less *proxy.Plan) {
	b.Helper()
	var o model.Objects
	port, name, proto := int32(8080), "http", corev1.ProtocolTCP
	for i := range 10000 {
		svc := fmt.Sprintf("svc-%05d", i)
		o.Services = append(o.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: svc, Namespace: "bench"},
			Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), Ports: []corev1.ServicePort{{Name: name, Port: 80}}}})
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: svc, Namespace: "bench", Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
		for e := range 10 {
			n := i*10 + e
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)}})
		}
		o.EndpointSlices = append(o.EndpointSlices, s)
	}
	cfg := proxy.Config{Node: "node1", MasqueradeBit: 14, RejectUnknownPorts: true,
		Detector: proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}}
	snap, _ := model.Build(nil, o)
	full, _ = proxy.New(nil, snap, cfg)
	changed := o.EndpointSlices[5000].DeepCopy()
	changed.Endpoints = changed.Endpoints[1:]
	o.EndpointSlices = slices.Clone(o.EndpointSlices)
	o.EndpointSlices[5000] = changed
	snap, _ = model.Build(snap, o)
	less, _ = proxy.New(full, snap, cfg)
	return full, less
}

// BenchmarkCold compiles 10,000 Services and finds the Change from nothing.
func BenchmarkCold(b *testing.B) {
	full, _ := tenThousand(b)
	b.ReportAllocs()
	for b.Loop() {
		nftables.Diff(nil, nftables.Compile(nil, full))
	}
}

// BenchmarkOneEndpoint takes the first of ten endpoints away and puts it back: the
// worst place, as all others move.
func BenchmarkOneEndpoint(b *testing.B) {
	full, less := tenThousand(b)
	have := nftables.Compile(nil, full)
	b.ReportAllocs()
	for b.Loop() {
		want := nftables.Compile(have, less)
		nftables.Diff(have, want)
		have = nftables.Compile(want, full)
		nftables.Diff(want, have)
	}
}
