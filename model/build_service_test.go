package model

import (
	"fmt"
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

// TestSourceRangeForms: a range of IPv4 in IPv6's form restricts IPv4, and one that cannot
// be read admits nobody of either family.
func TestSourceRangeForms(t *testing.T) {
	for text, want := range map[string]string{
		"::ffff:10.0.0.0/104": "[10.0.0.0/8]",
		" 10.1.2.3/8 ":        "[10.0.0.0/8]",
		"::ffff:0.0.0.0/90":   "[::/128 0.0.0.0/32]",
		"10.0.0.0":            "[::/128 0.0.0.0/32]",
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", LoadBalancerSourceRanges: []string{text}, Ports: []corev1.ServicePort{{Port: 80}}}}
		snap, problems := Build(nil, Objects{Services: []*corev1.Service{svc}})
		if got := fmt.Sprint(snap.Services[0].SourceRanges); got != want || len(problems) != strings.Count(want, " ") {
			t.Errorf("%q: %s %v, want %s", text, got, problems, want)
		}
	}
}

// TestDoubles: a second port of one name, and a second address of one family, are told and
// left out; the first work.
func TestDoubles(t *testing.T) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{
		ClusterIPs: []string{"10.96.0.1", "10.96.0.2", "fd00::1"},
		Ports:      []corev1.ServicePort{{Name: "p", Port: 80}, {Name: "p", Port: 81}, {Name: "p", Protocol: "UDP", Port: 80}},
	}}
	snap, problems := Build(nil, Objects{Services: []*corev1.Service{svc}})
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
	}
	if got := fmt.Sprint(fields); got != "[spec.clusterIPs[1] spec.ports[1].name]" {
		t.Errorf("problems of %s: %v", got, problems)
	}
	s := snap.Services[0]
	if fmt.Sprint(s.ClusterIPs) != "[10.96.0.1 fd00::1]" || len(s.Ports) != 2 || s.Ports[0].Port != 80 {
		t.Errorf("addresses %v, ports %v", s.ClusterIPs, s.Ports)
	}
}
