package kube

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// desk is a publisher on a fake API server.
type desk struct {
	*Publisher
	t      *testing.T
	client *fake.Clientset
	pools  []*model.Pool
}

func newDesk(t *testing.T, objects ...runtime.Object) *desk {
	client := fake.NewClientset(objects...)
	d := &desk{t: t, client: client, Publisher: &Publisher{
		Services: client.CoreV1(), Events: client.CoreV1(), Ingresses: client.NetworkingV1(), Node: "n1",
		Log: slog.New(slog.DiscardHandler),
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { d.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return d
}

func lbService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "u-" + "1"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func onePool(t *testing.T, text string) []*model.Pool {
	r, err := ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return []*model.Pool{{Name: model.Name{Name: "first"}, AutoAssign: true, Ranges: []model.Range{r}}}
}

// pass is one pass of the loop: read, assign, report.
func (d *desk) pass() {
	d.t.Helper()
	list, err := d.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithKind("Service"), "")
	if err != nil {
		d.t.Fatal(err)
	}
	o := model.Objects{Pools: d.pools}
	for _, s := range list.(*corev1.ServiceList).Items {
		o.Services = append(o.Services, s.DeepCopy())
	}
	snap, _ := model.Build(nil, o)
	res, problems := lb.Assign(snap, lb.Config{})
	d.Publish(Report{Problems: problems, Services: res.Wants})
}

func (d *desk) service(name string) *corev1.Service {
	o, err := d.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("services"), "shop", name)
	if err != nil {
		d.t.Fatal(err)
	}
	return o.(*corev1.Service)
}

func (d *desk) events() []corev1.Event {
	list, err := d.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithKind("Event"), "")
	if err != nil {
		d.t.Fatal(err)
	}
	return list.(*corev1.EventList).Items
}

// writes lists what was changed so far, as VERB RESOURCE[/SUB].
func (d *desk) writes() []string {
	var out []string
	for _, a := range d.client.Actions() {
		if v := a.GetVerb(); v != "get" && v != "list" && v != "watch" {
			out = append(out, strings.TrimSuffix(v+" "+a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
		}
	}
	return out
}

func (d *desk) until(what string, ok func() bool) {
	d.t.Helper()
	for start := time.Now(); time.Since(start) < 5*time.Second; time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	d.t.Fatalf("never: %s; writes %v", what, d.writes())
}

func TestPublishAddress(t *testing.T) {
	d := newDesk(t, lbService("web"))
	d.pools = onePool(t, "192.0.2.1-192.0.2.9")
	d.pass()
	time.Sleep(50 * time.Millisecond)
	if w := d.writes(); len(w) > 0 {
		t.Fatalf("not the leader, yet wrote %v", w)
	}
	d.Lead(true)
	d.until("address in status", func() bool { return len(d.service("web").Status.LoadBalancer.Ingress) == 1 })
	s := d.service("web")
	in := s.Status.LoadBalancer.Ingress[0]
	if in.IP != "192.0.2.1" || in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeVIP || !slices.Contains(s.Finalizers, lb.CleanupFinalizer) {
		t.Errorf("service is now %+v %v", in, s.Finalizers)
	}
	c := s.Status.Conditions
	if len(c) != 1 || c[0].Type != lb.ConditionAddressAssigned || c[0].Status != metav1.ConditionTrue || c[0].Reason != "Assigned" {
		t.Errorf("conditions %+v", c)
	}
	if w := d.writes(); !slices.Equal(w, []string{"patch services", "patch services/status"}) {
		t.Errorf("writes %v: the finalizer comes first, then the status", w)
	}
	d.pass()
	d.pass()
	time.Sleep(50 * time.Millisecond)
	if w := d.writes(); len(w) != 2 {
		t.Errorf("wrote again without a change: %v", w)
	}

	s = d.service("web").DeepCopy()
	s.Spec.Type = corev1.ServiceTypeClusterIP
	if err := d.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("services"), s, "shop"); err != nil {
		t.Fatal(err)
	}
	d.pass()
	d.until("released", func() bool { return len(d.service("web").Finalizers) == 0 })
	if s := d.service("web"); len(s.Status.LoadBalancer.Ingress) > 0 || len(s.Status.Conditions) > 0 {
		t.Errorf("released with status %+v", s.Status)
	}
	if w := d.writes()[2:]; !slices.Equal(w, []string{"patch services/status", "patch services"}) {
		t.Errorf("writes %v: the status is emptied before the finalizer goes", w)
	}
}

func TestPublishNoPoolEvent(t *testing.T) {
	d := newDesk(t, lbService("web"))
	d.Lead(true)
	d.pass()
	d.until("an event", func() bool { return len(d.events()) == 1 })
	e := d.events()[0]
	if e.Reason != "NoPool" || e.Type != "Warning" || !strings.Contains(e.Message, "<pending>") || !strings.Contains(e.Message, "IPAddressPool") ||
		e.InvolvedObject.Kind != "Service" || e.InvolvedObject.UID != "u-1" || e.InvolvedObject.APIVersion != "v1" {
		t.Errorf("event %+v", e)
	}
	d.until("condition False", func() bool {
		c := d.service("web").Status.Conditions
		return len(c) == 1 && c[0].Status == metav1.ConditionFalse && c[0].Reason == "NoPool"
	})
	d.pass()
	d.pass()
	time.Sleep(50 * time.Millisecond)
	if e := d.events(); len(e) != 1 || e[0].Count != 1 {
		t.Errorf("the same Problem was told again: %+v", e)
	}
	d.pools = onePool(t, "192.0.2.1")
	d.pass() // resolved
	d.until("address", func() bool { return len(d.service("web").Status.LoadBalancer.Ingress) == 1 })
	d.Lead(false)
	d.pools = nil
	d.pass()
	time.Sleep(50 * time.Millisecond)
	if e := d.events(); len(e) != 1 {
		t.Errorf("told without leading: %+v", e)
	}
}

func TestPublishNewLeaderTellsOnce(t *testing.T) {
	d := newDesk(t, lbService("web"))
	d.Lead(true)
	d.pass()
	d.until("an event", func() bool { return len(d.events()) == 1 })
	d.Lead(false)
	d.Lead(true)
	d.until("time moved", func() bool { return slices.Contains(d.writes(), "patch events") })
	if n := len(d.events()); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestPublishConflictAndOutage(t *testing.T) {
	d := newDesk(t, lbService("web"))
	d.pools = onePool(t, "192.0.2.1")
	var conflicts, outage atomic.Int32
	conflicts.Store(2)
	outage.Store(2)
	d.client.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch {
		case outage.Add(-1) >= 0:
			return true, nil, errors.New("connection refused")
		case conflicts.Add(-1) >= 0:
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errors.New("changed"))
		}
		return false, nil, nil
	})
	d.Lead(true)
	d.pass()
	d.until("written in the end", func() bool { return len(d.service("web").Status.LoadBalancer.Ingress) == 1 })
}

// A decision that was overtaken is never written.
func TestPublishStale(t *testing.T) {
	d := newDesk(t, lbService("web"))
	d.pools = onePool(t, "192.0.2.1-192.0.2.9")
	d.pass()
	s := d.service("web").DeepCopy()
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.5"}}
	if err := d.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("services"), s, "shop"); err != nil {
		t.Fatal(err)
	}
	d.Lead(true) // with the decision from before the status
	time.Sleep(50 * time.Millisecond)
	if ip := d.service("web").Status.LoadBalancer.Ingress[0].IP; ip != "192.0.2.5" || len(d.writes()) > 0 {
		t.Fatalf("status is %s, writes %v", ip, d.writes())
	}
	d.pass()
	d.until("decided anew", func() bool { return len(d.service("web").Finalizers) == 1 })
	if ip := d.service("web").Status.LoadBalancer.Ingress[0].IP; ip != "192.0.2.5" {
		t.Errorf("status is %s", ip)
	}
}

func TestPublishIngressAndNodeProblem(t *testing.T) {
	in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "site", Namespace: "shop", UID: "i-1"}}
	d := newDesk(t, in)
	ref := model.Ref{Kind: "Ingress", Name: model.Name{Namespace: "shop", Name: "site"}, UID: "i-1"}
	r := Report{
		Ingresses: []IngressStatus{{Ingress: ref, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}},
		Node: []model.Problem{
			{Object: model.Ref{Kind: "Node", Name: model.Name{Name: "n1"}}, Reason: "KernelRefused", Message: "no"},
			{Object: model.Ref{Kind: "File", Name: model.Name{Name: "x.yaml"}}, Reason: "UnreadableDocument", Message: "no"},
		},
	}
	d.Publish(r)
	d.until("the node's own event without leading", func() bool { return len(d.events()) == 1 })
	if e := d.events()[0]; e.Namespace != "default" || e.Source.Host != "n1" {
		t.Errorf("event %+v", e)
	}
	d.Lead(true)
	status := func() []networkingv1.IngressLoadBalancerIngress {
		o, err := d.client.Tracker().Get(networkingv1.SchemeGroupVersion.WithResource("ingresses"), "shop", "site")
		if err != nil {
			t.Fatal(err)
		}
		return o.(*networkingv1.Ingress).Status.LoadBalancer.Ingress
	}
	d.until("Ingress status", func() bool { s := status(); return len(s) == 1 && s[0].IP == "192.0.2.7" })
	n := len(d.writes())
	d.Publish(r)
	time.Sleep(50 * time.Millisecond)
	if w := d.writes(); len(w) != n {
		t.Errorf("wrote again: %v", w[n:])
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	old := metav1.NewTime(time.Unix(1000, 0))
	have := []metav1.Condition{{Type: "example.com/Checked", Status: metav1.ConditionTrue}, {Type: "fairway.io/Old"},
		{Type: lb.ConditionAddressAssigned, Status: metav1.ConditionTrue, Reason: "Assigned", LastTransitionTime: old}}
	got := mergeConditions(have, []lb.Condition{{Type: lb.ConditionAddressAssigned, Status: true, Reason: "Assigned", Message: "new"}}, metav1.Now())
	if len(got) != 2 || got[0].Type != "example.com/Checked" || !got[1].LastTransitionTime.Equal(&old) || got[1].Message != "new" {
		t.Errorf("merged to %+v", got)
	}
}

func TestLocal(t *testing.T) {
	var log bytes.Buffer
	changes := 0
	l := &Local{Log: slog.New(slog.NewTextHandler(&log, nil)), Changed: func() { changes++ }}
	files := []*corev1.Service{lbService("web"), lbService("api")}
	pass := func(pools []*model.Pool) {
		snap, _ := model.Build(nil, model.Objects{Services: l.Overlay(files), Pools: pools})
		res, problems := lb.Assign(snap, lb.Config{})
		l.Publish(Report{Problems: problems, Services: res.Wants})
	}
	pass(nil)
	pass(nil)
	if n := strings.Count(log.String(), "NoPool"); n != 2 || changes != 0 {
		t.Errorf("%d lines, %d changes; want one line per Service\n%s", n, changes, &log)
	}
	pools := onePool(t, "192.0.2.1-192.0.2.9")
	pass(pools)
	first := l.Overlay(files)
	pass(pools)
	again := l.Overlay(files)
	if changes != 1 || first[0] != again[0] || first[0] == files[0] {
		t.Errorf("changes %d, same copy %v", changes, first[0] == again[0])
	}
	if ip := first[1].Status.LoadBalancer.Ingress[0].IP; ip != "192.0.2.1" { // api before web
		t.Errorf("api has %s", ip)
	}
	if !strings.Contains(log.String(), "resolved") {
		t.Errorf("nothing resolved:\n%s", &log)
	}
}
