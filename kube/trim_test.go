package kube

import (
	"reflect"
	"strings"
	"testing"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The model reads the same from an EndpointSlice before and after it is trimmed.
func TestTrimSlice(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x", GenerateName: "web-", ResourceVersion: "7", UID: "u",
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z"},
			Labels:      map[string]string{discoveryv1.LabelServiceName: "web", corev1.IsHeadlessService: "", "app": "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.1"}, NodeName: ptr.To("a"), Zone: ptr.To("z1"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "1"}},
			{Addresses: []string{"10.1.0.2", "10.1.0.22"}, NodeName: ptr.To("a"), Zone: ptr.To("z1"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}},
			{Addresses: []string{"10.1.0.3"}, NodeName: ptr.To("b"), Zone: ptr.To("z1"), Hostname: ptr.To("db-0"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
			{Addresses: []string{"10.1.0.4"}, Zone: ptr.To("z2"), Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-4"}},
			{Addresses: []string{"10.1.0.5"}, NodeName: ptr.To("c")},
		},
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
	read := func(s *discoveryv1.EndpointSlice) []*model.Endpoint {
		snap, problems := model.Build(nil, model.Objects{Services: []*corev1.Service{svc}, EndpointSlices: []*discoveryv1.EndpointSlice{s}})
		if len(problems) > 0 || len(snap.Services[0].Endpoints) != 5 {
			t.Fatalf("%d endpoints, problems %v", len(snap.Services[0].Endpoints), problems)
		}
		return snap.Services[0].Endpoints
	}
	want := read(slice.DeepCopy())
	trim(slice)
	if got := read(slice); !reflect.DeepEqual(got, want) {
		t.Errorf("after trimming the model reads %+v, want %+v", got, want)
	}
	if slice.Labels["app"] != "" || slice.GenerateName != "" || slice.Endpoints[0].TargetRef.UID != "" {
		t.Errorf("kept what nobody reads: %+v", slice.ObjectMeta)
	}
	if slice.ResourceVersion != "7" || slice.UID != "u" || !strings.HasPrefix(slice.Annotations[corev1.EndpointsLastChangeTriggerTime], "2026") {
		t.Errorf("lost what is read: %+v", slice.ObjectMeta)
	}
}
