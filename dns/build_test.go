package dns_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/dns"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// cluster makes n ClusterIP Services with the given number of endpoints each.
func cluster(n, endpoints int) model.Objects {
	var o model.Objects
	for i := range n {
		name := fmt.Sprintf("svc-%05d", i)
		o.Services = append(o.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255),
				Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}},
		})
		o.EndpointSlices = append(o.EndpointSlices, slice(name, i*endpoints, endpoints))
	}
	return o
}

func slice(svc string, first, n int) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "bench", Name: svc + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for i := first; i < first+n; i++ {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("172.%d.%d.%d", 16+i>>16, i>>8&255, i&255)}})
	}
	return sl
}

func TestUnchangedIsSame(t *testing.T) {
	o := cluster(10, 2)
	snap, _ := model.Build(nil, o)
	a, _ := dns.Build(nil, snap, dns.DefaultConfig())
	again, _ := model.Build(snap, o)
	b, _ := dns.Build(a, again, dns.DefaultConfig())
	if a != b {
		t.Error("nothing changed, yet the zone is another")
	}
	cfg := dns.DefaultConfig()
	cfg.TTL = 7
	c, _ := dns.Build(a, again, cfg)
	if r := c.Answer(dns.Question{Name: "svc-00001.bench.svc.cluster.local", Type: dns.TypeA}); r.Answer[0].TTL != 7 {
		t.Errorf("the new TTL is not used: %v", r.Answer)
	}
	if c.Serial() <= a.Serial() {
		t.Errorf("serial went from %d to %d", a.Serial(), c.Serial())
	}
}

func TestDiff(t *testing.T) {
	o := cluster(3, 1)
	snap, _ := model.Build(nil, o)
	a, _ := dns.Build(nil, snap, dns.DefaultConfig())
	o.Services = slices.Delete(slices.Clone(o.Services), 0, 1)
	o.EndpointSlices = slices.Clone(o.EndpointSlices)
	o.EndpointSlices[1] = slice("svc-00001", 1, 2)
	snap, _ = model.Build(snap, o)
	b, _ := dns.Build(a, snap, dns.DefaultConfig())
	got := strings.Join(dns.Diff(a, b), "\n")
	want := `-svc-00000.bench.svc.cluster.local. 30 IN A 10.96.0.0
-svc-00000.bench.svc.cluster.local. 30 IN SRV 0 100 80 svc-00000.bench.svc.cluster.local.
-172-16-0-0.svc-00000.bench.svc.cluster.local. 30 IN A 172.16.0.0
-_http._tcp.svc-00000.bench.svc.cluster.local. 30 IN SRV 0 100 80 svc-00000.bench.svc.cluster.local.
-0.0.96.10.in-addr.arpa. 30 IN PTR svc-00000.bench.svc.cluster.local.
-0.0.16.172.in-addr.arpa. 30 IN PTR 172-16-0-0.svc-00000.bench.svc.cluster.local.
+172-16-0-2.svc-00001.bench.svc.cluster.local. 30 IN A 172.16.0.2
+2.0.16.172.in-addr.arpa. 30 IN PTR 172-16-0-2.svc-00001.bench.svc.cluster.local.`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if d := dns.Diff(nil, a); len(d) == 0 || d[0][0] != '+' {
		t.Errorf("from nothing: %v", d)
	}
	if d := dns.Diff(a, a); d != nil {
		t.Errorf("a zone differs from itself: %v", d)
	}
}

// TestLookupAgreesWithText asks for every record the zone prints, forward and reverse.
func TestLookupAgreesWithText(t *testing.T) {
	snap, _ := model.Build(nil, cluster(200, 3))
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	asked := 0
	for _, line := range strings.Split(z.Text(), "\n") {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] == ";" {
			continue
		}
		typ, err := dns.ParseType(f[3])
		if err != nil {
			t.Fatal(err)
		}
		r := z.Answer(dns.Question{Name: strings.ToUpper(f[0]), Type: typ})
		if !slices.ContainsFunc(r.Answer, func(r dns.Record) bool { return strings.EqualFold(r.String(), line) }) {
			t.Fatalf("%s\nis printed but not answered: %v", line, r.Answer)
		}
		asked++
	}
	if asked < 200*8 {
		t.Errorf("only %d records seen", asked)
	}
}

// TestSharedAddress puts one address behind many Services: building stays linear.
func TestSharedAddress(t *testing.T) {
	o := cluster(5000, 1)
	for i := range o.EndpointSlices {
		o.EndpointSlices[i] = slice(o.Services[i].Name, 0, 1)
	}
	snap, _ := model.Build(nil, o)
	start := time.Now()
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	if r := z.Answer(dns.Question{Name: "0.0.16.172.in-addr.arpa", Type: dns.TypePTR}); len(r.Answer) != 5000 {
		t.Errorf("%d PTR records", len(r.Answer))
	}
}

func FuzzAnswer(f *testing.F) {
	snap, _ := model.Build(nil, cluster(3, 2))
	cfg := dns.DefaultConfig()
	cfg.Fallthrough = nil
	z, _ := dns.Build(nil, snap, cfg)
	for _, s := range []string{"svc-00001.bench.svc.cluster.local.", "", ".", "..", "cluster.local", ".cluster.local.", "svc.cluster.local.",
		"--1.bench.pod.cluster.local", "1.in-addr.arpa.", ".in-addr.arpa.", "_http._tcp.svc-00000.bench.svc.Cluster.Local", "a\\.b.ip6.arpa.",
		strings.Repeat("1.", 32) + "ip6.arpa"} {
		f.Add(s, uint16(1))
		f.Add(s, uint16(12))
	}
	f.Fuzz(func(t *testing.T, name string, typ uint16) {
		r := z.Explain(dns.Question{Name: name, Type: dns.Type(typ)})
		if !r.NotOurs && len(r.Answer) == 0 && len(r.Authority) != 1 {
			t.Errorf("%q: a denial without SOA", name)
		}
		if len(r.Steps) == 0 {
			t.Errorf("%q: nothing is explained", name)
		}
		for _, rec := range r.Answer {
			if rec.Type == dns.TypeA && !rec.Addr.Is4() {
				t.Errorf("%q: %v", name, rec)
			}
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		o := cluster(n, 10)
		snap, _ := model.Build(nil, o)
		b.Run(fmt.Sprintf("cold/%d", n), func(b *testing.B) {
			for b.Loop() {
				dns.Build(nil, snap, dns.DefaultConfig())
			}
		})
		b.Run(fmt.Sprintf("one changed/%d", n), func(b *testing.B) {
			z, _ := dns.Build(nil, snap, dns.DefaultConfig())
			other := o
			other.EndpointSlices = slices.Clone(o.EndpointSlices)
			other.EndpointSlices[n/2] = slice(o.Services[n/2].Name, 0, 11)
			changed, _ := model.Build(snap, other)
			for b.Loop() {
				dns.Build(z, changed, dns.DefaultConfig())
			}
		})
	}
}

func BenchmarkAnswer(b *testing.B) {
	snap, _ := model.Build(nil, cluster(10000, 10))
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	for _, q := range []dns.Question{
		{Name: "svc-05000.bench.svc.cluster.local.", Type: dns.TypeA},
		{Name: "svc-05000.bench.svc.cluster.local.", Type: dns.TypeAAAA},
		{Name: "nothing.bench.svc.cluster.local.", Type: dns.TypeA},
		{Name: "1.0.96.10.in-addr.arpa.", Type: dns.TypePTR},
	} {
		b.Run(q.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				z.Answer(q)
			}
		})
	}
}

func TestPodNames(t *testing.T) {
	o := cluster(1, 1)
	snap, _ := model.Build(nil, o)
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	r := z.Answer(dns.Question{Name: "1-2-3-4.bench.pod.cluster.local", Type: dns.TypeA})
	if len(r.Answer) != 1 || r.Answer[0].Addr != netip.MustParseAddr("1.2.3.4") {
		t.Errorf("got %+v", r)
	}
}
