package loop

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/server/stream"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noKernel takes every Change: what is measured is this program's own part.
type noKernel struct{}

func (noKernel) Apply(*nftables.Change) error { return nil }

func (noKernel) ListFor(*nftables.Program) (*nftables.Program, error) { return nil, nil }

func (noKernel) Cleanup() error { return nil }

func (noKernel) Foreign(bool, bool) (wrote, gone bool, err error) { return false, false, nil }

func (noKernel) Counts(bool, bool, func(nftables.Elem, uint64)) error { return nil }

// BenchmarkUserspaceChange is one endpoint more or less among 5,000 Services of 10, from
// the Plan on. The listeners are real, on a loopback address.
func BenchmarkUserspaceChange(b *testing.B) {
	var o model.Objects
	port, name, proto := int32(8080), "http", corev1.ProtocolTCP
	slice := func(i, endpoints int) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i), Namespace: "ns",
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprint("s", i)}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
		for e := range endpoints {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+e, i/250, 1+i%250)}})
		}
		return s
	}
	for i := range 5000 {
		o.Services = append(o.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i), Namespace: "ns"},
			Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), Ports: []corev1.ServicePort{{Name: name, Port: 80, Protocol: proto}}}})
		o.EndpointSlices = append(o.EndpointSlices, slice(i, 10))
	}
	cfg := proxy.Config{Node: "n", NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.77")}, RejectUnknownPorts: true}.WithMode(proxy.Userspace)
	back := NewUserspace(stream.New(stream.Settings{}), NewNFTables(noKernel{}))
	defer back.server.Prune(stream.Config{})
	snap, _ := model.Build(nil, o)
	plan, _ := proxy.New(nil, snap, cfg)
	if problems, err := back.Apply(context.Background(), plan); err != nil || len(problems) > 0 {
		b.Fatal(err, problems)
	}
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		o.EndpointSlices[2500] = slice(2500, 9+n%2)
		snap, _ = model.Build(snap, o)
		plan, _ = proxy.New(plan, snap, cfg)
		b.StartTimer()
		if _, err := back.Apply(context.Background(), plan); err != nil {
			b.Fatal(err)
		}
	}
}
