package model

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestPortNumbers: the field at fault is named, with its value, and the other ports work.
func TestPortNumbers(t *testing.T) {
	for field, bad := range map[string]corev1.ServicePort{
		"spec.ports[0].port":       {Name: "a", Port: 80800},
		"spec.ports[0].nodePort":   {Name: "a", Port: 80, NodePort: 300800},
		"spec.ports[0].targetPort": {Name: "a", Port: 80, TargetPort: intstr.FromInt32(80800)},
		"spec.ports[0].protocol":   {Name: "a", Port: 80, Protocol: "TPC"},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{bad, {Name: "b", Port: 81}}}}
		snap, problems := Build(nil, Objects{Services: []*corev1.Service{svc}})
		if len(problems) != 1 || problems[0].Field != field {
			t.Errorf("%s: %v", field, problems)
			continue
		}
		value := map[string]string{"port": "80800", "nodePort": "300800", "targetPort": "80800", "protocol": `"TPC"`}[field[len("spec.ports[0]."):]]
		if !strings.HasPrefix(problems[0].Message, value+" ") {
			t.Errorf("%s: %q does not begin with %s", field, problems[0].Message, value)
		}
		left := 1
		if field == "spec.ports[0].targetPort" {
			left = 2
		}
		if got := snap.Services[0].Ports; len(got) != left || got[left-1].Port != 81 {
			t.Errorf("%s: ports %v", field, got)
		}
	}
}
