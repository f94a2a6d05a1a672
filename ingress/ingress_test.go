package ingress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func backendOf(addrs ...string) *Backend {
	b := &Backend{Target: Target{Service: model.Name{Namespace: "default", Name: "web"}, PortNumber: 80}}
	for _, a := range addrs {
		b.Endpoints = append(b.Endpoints, Endpoint{Addr: addr(a)})
	}
	return b
}

func TestPickTakesTurns(t *testing.T) {
	b := backendOf("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	seen := map[netip.AddrPort]int{}
	for n := range uint64(300) {
		e, _, ok := b.Pick(n, "", nil)
		if !ok {
			t.Fatal("nobody picked")
		}
		seen[e.Addr]++
	}
	for a, n := range seen {
		if n != 100 {
			t.Errorf("%s picked %d times of 300", a, n)
		}
	}
}

func TestPickAvoidsTried(t *testing.T) {
	b := backendOf("10.0.0.1:80", "10.0.0.2:80")
	tried := []netip.AddrPort{addr("10.0.0.1:80")}
	for n := range uint64(4) {
		if e, _, ok := b.Pick(n, "", tried); !ok || e.Addr != addr("10.0.0.2:80") {
			t.Errorf("Pick(%d) = %v %v", n, e, ok)
		}
	}
	if _, _, ok := b.Pick(0, "", append(tried, addr("10.0.0.2:80"))); ok {
		t.Error("picked although all were tried")
	}
	if _, _, ok := backendOf().Pick(7, "", nil); ok {
		t.Error("picked from an empty list")
	}
}

func TestPickByCookie(t *testing.T) {
	b := backendOf("10.0.0.1:80", "10.0.0.2:80")
	b.Draining = []Endpoint{{Addr: addr("10.0.0.3:80")}}
	b.makeSticky([]byte("key"))
	for n := range uint64(3) {
		if e, kept, _ := b.Pick(n, b.Endpoints[1].Cookie, nil); !kept || e.Addr != addr("10.0.0.2:80") {
			t.Errorf("cookie did not decide: %v", e)
		}
		if e, kept, _ := b.Pick(n, b.Draining[0].Cookie, nil); !kept || e.Addr != addr("10.0.0.3:80") {
			t.Errorf("a draining endpoint lost its session: %v", e)
		}
		if e, kept, ok := b.Pick(n, "ffffffff", nil); kept || !ok || e.Addr == addr("10.0.0.3:80") {
			t.Errorf("a stale cookie led to %v", e)
		}
	}
	// The value is the endpoint's own, whoever else comes or goes, and says nothing.
	again := backendOf("10.0.0.2:80")
	again.makeSticky([]byte("key"))
	if again.Endpoints[0].Cookie != b.Endpoints[1].Cookie {
		t.Error("the cookie value is not stable")
	}
	again.makeSticky([]byte("other"))
	if again.Endpoints[0].Cookie == b.Endpoints[1].Cookie {
		t.Error("the key has no effect")
	}
	if strings.Contains(b.Endpoints[0].Cookie, "10.0.0") || len(b.Endpoints[0].Cookie) != 32 {
		t.Errorf("cookie %q", b.Endpoints[0].Cookie)
	}
}

// cluster makes hosts × paths of Ingresses, one Ingress and Service per host.
func cluster(hosts, paths int) model.Objects {
	o := model.Objects{IngressClasses: []*networkingv1.IngressClass{{
		ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName}}}}
	class, prefix, port := "fairway", networkingv1.PathTypePrefix, int32(8080)
	for i := range hosts {
		name := fmt.Sprintf("web-%d", i)
		meta := metav1.ObjectMeta{Namespace: "default", Name: name}
		o.Services = append(o.Services, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}})
		slice := meta
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		empty := ""
		o.EndpointSlices = append(o.EndpointSlices, &discoveryv1.EndpointSlice{ObjectMeta: slice, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: &empty, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.%d.%d.1", i/256, i%256)}}}})
		rule := networkingv1.IngressRule{Host: fmt.Sprintf("h%d.example.com", i)}
		rule.HTTP = &networkingv1.HTTPIngressRuleValue{}
		for p := range paths {
			rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{Path: fmt.Sprintf("/p%d", p), PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}}})
		}
		o.Ingresses = append(o.Ingresses, &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{rule}}})
	}
	return o
}

func TestBuildTakesOverWhatDidNotChange(t *testing.T) {
	objects := cluster(2, 1)
	snap, _ := model.Build(nil, objects)
	first, problems := Build(nil, snap, Config{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	changed := *objects.EndpointSlices[1]
	changed.Endpoints = append(slices.Clone(changed.Endpoints), discoveryv1.Endpoint{Addresses: []string{"10.9.9.9"}})
	objects.EndpointSlices = []*discoveryv1.EndpointSlice{objects.EndpointSlices[0], &changed}
	snap, _ = model.Build(snap, objects)
	second, _ := Build(first, snap, Config{})
	r := func(t *Table, h string) *Route { r, _, _, _ := t.Lookup(h, "/p0"); return r }
	if r(first, "h0.example.com").Backend != r(second, "h0.example.com").Backend {
		t.Error("an unchanged Service got a new Backend")
	}
	if r(first, "h1.example.com").Backend == r(second, "h1.example.com").Backend {
		t.Error("a changed Service kept its Backend")
	}
	want := []string{
		"-h1.example.com/p0 Prefix -> default/web-1:80 10.0.1.1:8080 (default/web-1)",
		"+h1.example.com/p0 Prefix -> default/web-1:80 10.0.1.1:8080,10.9.9.9:8080 (default/web-1)",
	}
	if got := Diff(first, second); !slices.Equal(got, want) {
		t.Errorf("Diff = %q", got)
	}
	if n := len(Diff(nil, first)); n != 2 {
		t.Errorf("Diff from nothing has %d lines", n)
	}
	third, _ := Build(second, snap, Config{DisableSSLRedirect: true})
	if r(third, "h0.example.com").Settings.SSLRedirect {
		t.Error("another Config left old settings in place")
	}
}

func TestStatusChanges(t *testing.T) {
	objects := cluster(2, 1)
	objects.Ingresses[0].Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb.example.com"}, {IP: "192.0.2.1"}}
	other := "other"
	objects.Ingresses = append(objects.Ingresses, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "z"},
		Spec: networkingv1.IngressSpec{IngressClassName: &other, DefaultBackend: &networkingv1.IngressBackend{}}})
	snap, _ := model.Build(nil, objects)
	table, _ := Build(nil, snap, Config{PublishedAddresses: []string{"192.0.2.1", "lb.example.com", "192.0.2.1"}})
	got := table.StatusChanges()
	if len(got) != 1 || got[0].Ingress.Name.Name != "web-1" || !slices.Equal(got[0].Addresses, []string{"192.0.2.1", "lb.example.com"}) {
		t.Errorf("StatusChanges = %+v", got)
	}
}

// Ten thousand hosts with three paths: built within the bar, looked up in no time.
func TestBuildLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	snap, _ := model.Build(nil, cluster(10000, 3))
	first, _ := Build(nil, snap, Config{})
	start := time.Now()
	table, _ := Build(first, snap, Config{})
	took := time.Since(start)
	t.Logf("10,000 hosts × 3 paths rebuilt in %s", took)
	if took > time.Second {
		t.Errorf("rebuilding took %s", took)
	}
	if r, _, _, _ := table.Lookup("h9999.example.com", "/p2/x"); r == nil || r.Path != "/p2" {
		t.Errorf("route %+v", r)
	}
}

func BenchmarkBuild(b *testing.B) {
	snap, _ := model.Build(nil, cluster(10000, 3))
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			Build(nil, snap, Config{})
		}
	})
	b.Run("again", func(b *testing.B) {
		prev, _ := Build(nil, snap, Config{})
		for b.Loop() {
			Build(prev, snap, Config{})
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	snap, _ := model.Build(nil, cluster(10000, 3))
	table, _ := Build(nil, snap, Config{})
	b.ReportAllocs()
	for b.Loop() {
		table.Lookup("h777.example.com", "/p1/some/page")
	}
}

func TestSecretRefs(t *testing.T) {
	objects := cluster(2, 1)
	for _, i := range objects.Ingresses {
		i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"a"}, SecretName: "shared"}, {Hosts: []string{"b"}}}
	}
	snap, _ := model.Build(nil, objects)
	table, _ := Build(nil, snap, Config{DefaultCertificate: model.Name{Namespace: "ops", Name: "default"}})
	want := []model.Name{{Namespace: "default", Name: "shared"}, {Namespace: "ops", Name: "default"}}
	if got := table.SecretRefs(); !slices.Equal(got, want) {
		t.Errorf("SecretRefs = %v", got)
	}
}
