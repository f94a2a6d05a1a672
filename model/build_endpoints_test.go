package model

import (
	"testing"

	"fairway/packet"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSlicesOfOneAddress: while an endpoint moves between slices the better conditions
// win; slices with other ports speak for their own ports only.
func TestSlicesOfOneAddress(t *testing.T) {
	yes, no := true, false
	slice := func(name, port string, number int32, ready *bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
			Ports:      []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}},
		}
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}}
	ready := func(sl ...*discoveryv1.EndpointSlice) map[string]bool {
		snap, _ := Build(nil, Objects{Services: []*corev1.Service{svc}, EndpointSlices: sl})
		out := map[string]bool{}
		for _, e := range snap.Services[0].Endpoints {
			for _, p := range []string{"web", "admin"} {
				out[p] = out[p] || e.Ready && e.PortFor(p, packet.TCP) != 0
			}
		}
		return out
	}
	if got := ready(slice("s-1", "web", 80, &yes), slice("s-2", "web", 80, &no)); !got["web"] {
		t.Error("a move lost the endpoint")
	}
	got := ready(slice("s-1", "web", 80, &yes), slice("s-2", "admin", 81, &no))
	if !got["web"] || got["admin"] {
		t.Errorf("ready %v, want web alone: only its slice says so", got)
	}
}
