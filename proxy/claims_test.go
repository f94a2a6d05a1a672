package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever changes, a Plan made on the one before gives the frontends to those that a
// Plan made from nothing gives them to, with the same complaints.
func TestClaimsOnPrevious(t *testing.T) {
	for _, mode := range []Mode{NFTables, Userspace, EBPF, IPVS} {
		t.Run(string(mode), func(t *testing.T) { claimsOnPrevious(t, mode) })
	}
}

func claimsOnPrevious(t *testing.T, mode Mode) {
	rnd := rand.New(rand.NewPCG(3, 3))
	cfg := Config{Mode: mode, Node: "node1", NodeIPs: []netip.Addr{netip.MustParseAddr("172.30.0.11")}}
	services, ends := make([]*corev1.Service, 8), make([]*discoveryv1.EndpointSlice, 8)
	for i := range services {
		services[i], ends[i] = randomService(rnd, i), randomSlice(rnd, i)
	}
	var snap *model.Snapshot
	var plan *Plan
	robbed := 0
	for step := range 500 {
		if i := rnd.IntN(8); rnd.IntN(3) == 0 {
			services[i] = randomService(rnd, i)
		} else {
			ends[i] = randomSlice(rnd, i)
		}
		in := model.Objects{}
		in.Services, in.EndpointSlices = append(in.Services, services...), append(in.EndpointSlices, ends...)
		snap, _ = model.Build(snap, in)
		var got []model.Problem
		plan, got = New(plan, snap, cfg)
		fresh, want := New(nil, snap, cfg)
		robbed += len(fresh.guard.robbed)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: problems %v, want %v", step, got, want)
		}
		if plan.Text() != fresh.Text() {
			t.Fatalf("step %d: got\n%s\nwant\n%s", step, plan.Text(), fresh.Text())
		}
		for k := range fresh.index {
			if got, want := plan.at(k), fresh.at(k); got == nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d: %s is %v's, want %v's", step, k, got, want)
			}
		}
		if len(plan.index) != len(fresh.index) || !reflect.DeepEqual(plan.vips, fresh.vips) {
			t.Fatalf("step %d: %d frontends, want %d", step, len(plan.index), len(fresh.index))
		}
	}
	if (robbed > 50) != (mode != NFTables) {
		t.Errorf("%d frontends were endpoints", robbed)
	}
}

func randomService(rnd *rand.Rand, i int) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("s%d", i)},
		Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.0.%d", 10+i), Ports: []corev1.ServicePort{{Port: int32(80 + rnd.IntN(2))}}}}
	if rnd.IntN(4) == 0 {
		s.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", 1+rnd.IntN(3))}
	}
	if rnd.IntN(8) == 0 {
		s.Spec.ClusterIP = "10.96.0.10"
	}
	return s
}

func randomSlice(rnd *rand.Rand, i int) *discoveryv1.EndpointSlice {
	port := int32(8080)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("s%d-a", i),
		Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("s%d", i)}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}}}
	if rnd.IntN(4) == 0 { // perhaps where somebody has an externalIP
		port = 80
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("198.51.100.%d", 1+rnd.IntN(3))}})
	}
	for range rnd.IntN(3) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i, 1+rnd.IntN(9))}})
	}
	return s
}
