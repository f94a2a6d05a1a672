package kube

import (
	"testing"

	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWithProblems(t *testing.T) {
	svc := func(name string, conditions ...metav1.Condition) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.ServiceStatus{Conditions: conditions}}
	}
	snap, _ := model.Build(nil, model.Objects{Services: []*corev1.Service{
		svc("bad"), svc("cured", metav1.Condition{Type: ConditionProblem}), svc("fine"), svc("pending"),
	}})
	name := func(n string) model.Name { return model.Name{Namespace: "ns", Name: n} }
	problem := func(n string) model.Problem { return snap.Service(name(n)).Problem("spec.x", "Wrong", "is wrong") }
	ours := []lb.Want{{Service: snap.Service(name("pending")), Conditions: []lb.Condition{{Type: lb.ConditionAddressAssigned}}}}
	got := map[string]lb.Want{}
	for _, w := range WithProblems(ours, snap, []model.Problem{problem("bad"), problem("pending")}) {
		got[w.Service.Name.Name] = w
	}
	if w := got["bad"]; !w.ConditionsOnly || len(w.Conditions) != 1 || w.Conditions[0].Reason != "Wrong" || !w.Conditions[0].Status {
		t.Errorf("a Service with a Problem: %+v", w)
	}
	if w, ok := got["cured"]; !ok || !w.ConditionsOnly || len(w.Conditions) != 0 {
		t.Errorf("a Service whose Problem is gone: %+v", w)
	}
	if _, ok := got["fine"]; ok {
		t.Error("a Service without Problems is written")
	}
	if w := got["pending"]; w.ConditionsOnly || len(w.Conditions) != 2 {
		t.Errorf("a LoadBalancer Service with a Problem: %+v", w)
	}
	if len(ours[0].Conditions) != 1 {
		t.Error("the caller's wants were changed")
	}
}
