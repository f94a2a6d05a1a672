package model

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A number from a file may be out of range; it must not wrap round to another port.
func TestIngressPortOutOfRange(t *testing.T) {
	ing := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 65536 + 80}},
		}},
	}
	snap, problems := Build(nil, Objects{Ingresses: []*networkingv1.Ingress{ing}})
	if got := snap.Ingresses[0].Default; got == nil || got.PortNumber != 0 {
		t.Errorf("backend = %+v, want no port", got)
	}
	if len(problems) != 1 || problems[0].Reason != "InvalidBackend" {
		t.Errorf("problems = %v", problems)
	}
}
