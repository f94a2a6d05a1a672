package model

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// However the objects change, and in whatever order they come, a Snapshot built on the
// one before is that built from nothing, and keeps every Service nothing of which changed.
func TestBuildOnPrevious(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	var in Objects
	var prev *Snapshot
	for step := range 400 {
		in = changeSomething(rnd, in, step)
		before := map[*corev1.Service]*Service{}
		if prev != nil {
			for _, s := range prev.Services {
				before[s.object] = s
			}
		}
		snap, _ := Build(prev, in)
		fresh, _ := Build(nil, in)
		if len(snap.Services) != len(fresh.Services) {
			t.Fatalf("step %d: %d Services, want %d", step, len(snap.Services), len(fresh.Services))
		}
		for i, s := range snap.Services {
			want := fresh.Services[i]
			if !reflect.DeepEqual(s, want) {
				t.Fatalf("step %d: %s is %+v, want %+v", step, s.Name, s, want)
			}
			if old := before[s.object]; old != nil && old != s && slices.Equal(old.slices, s.slices) {
				t.Fatalf("step %d: %s was built anew though nothing of it changed", step, s.Name)
			}
			if got := snap.Service(s.Name); got != s {
				t.Fatalf("step %d: Service(%s) = %v", step, s.Name, got)
			}
		}
		prev = snap
	}
}

func changeSomething(rnd *rand.Rand, in Objects, step int) Objects {
	in.Services, in.EndpointSlices = slices.Clone(in.Services), slices.Clone(in.EndpointSlices)
	for range 1 + rnd.IntN(3) {
		name := fmt.Sprintf("s%d", rnd.IntN(12))
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: fmt.Sprint(step)},
			Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.0.%d", 1+rnd.IntN(200))}}
		sl := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, rnd.IntN(3)),
			Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.1.0.%d", 1+rnd.IntN(200))}}}}
		switch rnd.IntN(6) {
		case 0, 1:
			in.Services = slices.DeleteFunc(in.Services, func(o *corev1.Service) bool { return o.Name == name })
			in.Services = append(in.Services, svc)
		case 2, 3:
			in.EndpointSlices = slices.DeleteFunc(in.EndpointSlices, func(o *discoveryv1.EndpointSlice) bool { return o.Name == sl.Name })
			in.EndpointSlices = append(in.EndpointSlices, sl)
		case 4:
			in.Services = slices.DeleteFunc(in.Services, func(o *corev1.Service) bool { return o.Name == name })
		case 5:
			in.EndpointSlices = slices.DeleteFunc(in.EndpointSlices, func(o *discoveryv1.EndpointSlice) bool { return o.Name == sl.Name })
		}
	}
	switch rnd.IntN(4) {
	case 0: // as a store keeps them
		slices.SortFunc(in.Services, func(a, b *corev1.Service) int { return Name{a.Namespace, a.Name}.Compare(Name{b.Namespace, b.Name}) })
	case 1:
		rnd.Shuffle(len(in.Services), func(i, j int) { in.Services[i], in.Services[j] = in.Services[j], in.Services[i] })
		rnd.Shuffle(len(in.EndpointSlices), func(i, j int) {
			in.EndpointSlices[i], in.EndpointSlices[j] = in.EndpointSlices[j], in.EndpointSlices[i]
		})
	}
	return in
}
