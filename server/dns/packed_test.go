package dnsserver

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"fairway/dns"
	"fairway/kube"
	"fairway/model"

	wire "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// randomObjects makes a cluster of every kind of Service, with names that meet.
func randomObjects(r *rand.Rand) model.Objects {
	var o model.Objects
	hostnames := []string{"", "", "", "db-0", "DB-1", "twin", "twin", "_odd", "x.y", strings.Repeat("h", 64)}
	ports := []string{"http", "dns", "Web", "long-name-of-a-p"}
	protos := []corev1.Protocol{"TCP", "UDP", "SCTP"}
	for i := range 4 + r.IntN(20) {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "a", "shop", "kube-system"), Name: pick(r, "web", "db", "kube-dns", "svc", "pod", fmt.Sprint("s", i), fmt.Sprint(i, "x"))}}
		if slices.ContainsFunc(o.Services, func(o *corev1.Service) bool { return o.Name == svc.Name && o.Namespace == svc.Namespace }) {
			continue
		}
		o.Services = append(o.Services, svc)
		for range r.IntN(4) {
			p := corev1.ServicePort{Name: pick(r, append(ports, "")...), Port: 1 + r.Int32N(65535), Protocol: pick(r, protos...)}
			svc.Spec.Ports = append(svc.Spec.Ports, p)
		}
		v4, v6 := fmt.Sprintf("10.96.%d.%d", i, r.IntN(4)), fmt.Sprintf("fd00:96::%x", i)
		switch r.IntN(6) {
		case 0:
			svc.Spec.Type, svc.Spec.ExternalName = corev1.ServiceTypeExternalName, pick(r, "www.example.com", "web.shop.svc.cluster.local", "db.a.svc.cluster.local", "http://x")
			continue
		case 1, 2, 3:
			svc.Spec.ClusterIP = "None"
		case 4:
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = v4, []string{v4, v6}
		default:
			svc.Spec.ClusterIP = pick(r, v4, v6)
		}
		svc.Spec.PublishNotReadyAddresses = r.IntN(5) == 0
		for s := range r.IntN(4) {
			o.EndpointSlices = append(o.EndpointSlices, randomSlice(r, svc, s, hostnames))
		}
	}
	return o
}

func randomSlice(r *rand.Rand, svc *corev1.Service, n int, hostnames []string) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: fmt.Sprint(svc.Name, "-", n),
		Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}}, AddressType: pick(r, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)}
	for _, p := range svc.Spec.Ports {
		if r.IntN(8) > 0 {
			sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(1 + r.Int32N(3))})
		}
	}
	for range r.IntN(1 + pick(r, 1, 4, 4, 80)) {
		addr := fmt.Sprintf("10.244.%d.%d", r.IntN(2), r.IntN(60))
		if sl.AddressType == discoveryv1.AddressTypeIPv6 {
			addr = fmt.Sprintf("2001:db8:%x::%s", r.IntN(30), pick(r, "", "1", "a:b"))
		}
		e := discoveryv1.Endpoint{Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(r.IntN(4) > 0)}}
		if h := pick(r, hostnames...); h != "" && (h[0] != '_' || r.IntN(9) == 0) {
			e.Hostname = ptr.To(h)
		}
		if r.IntN(2) == 0 {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: svc.Namespace, Name: pick(r, "pod-1", "pod-2", "p.q")}
		}
		sl.Endpoints = append(sl.Endpoints, e)
	}
	return sl
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomConfig(r *rand.Rand) dns.Config {
	cfg := dns.DefaultConfig()
	cfg.Pods = pick(r, dns.PodsDisabled, dns.PodsInsecure, dns.PodsVerified)
	cfg.Fallthrough = pick(r, nil, cfg.Fallthrough, []string{"."}, []string{"shop.svc.cluster.local"})
	cfg.Reverse = pick(r, cfg.Reverse, []string{"10.in-addr.arpa", "in-addr.arpa"}, nil)
	cfg.Domain = pick(r, "cluster.local", "cluster.local", "k8s")
	cfg.EndpointPodNames, cfg.IgnoreEmpty = r.IntN(3) == 0, r.IntN(4) == 0
	return cfg
}

// randomName is a name of the zone, or one a little off.
func randomName(r *rand.Rand, z *dns.Zone, known []string) string {
	name := pick(r, known...)
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	switch r.IntN(8) {
	case 0:
		labels = labels[r.IntN(len(labels)):]
	case 1:
		labels[r.IntN(len(labels))] = pick(r, "web", "*", "_tcp", "_http", "10-244-0-1", "fd00--1", "f-f", "1--", "a", "pod", "svc", "ip6", "1", "01", "\\000", "dns", "ns")
	case 2:
		labels = append([]string{pick(r, "x", "_tcp", "_udp", "10-1-1-1", "1", "db-0", "10-244-1-7", "a--b")}, labels...)
	}
	name = strings.Join(labels, ".") + "."
	if r.IntN(3) == 0 {
		b := []byte(name)
		for i, c := range b {
			if c >= 'a' && c <= 'z' && r.IntN(2) == 0 && (i == 0 || b[i-1] != '\\') {
				b[i] = c - 'a' + 'A'
			}
		}
		name = string(b)
	}
	return name
}

// TestPackedAgrees packs answers of random zones to random questions and compares them
// with the plain answer sent through the library: the same records, flags and cuts.
func TestPackedAgrees(t *testing.T) {
	packed, asked := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		snap, _ := model.Build(nil, randomObjects(r))
		z, _ := dns.Build(nil, snap, randomConfig(r))
		known := namesOf(z)
		for range 400 {
			asked++
			if comparePacked(t, z, randomQuery(r, randomName(r, z, known)), r.Uint32()) {
				packed++
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
	t.Logf("%d of %d packed", packed, asked)
	if packed < asked/2 {
		t.Errorf("only %d of %d packed", packed, asked)
	}
}

func namesOf(z *dns.Zone) []string {
	known := []string{"10-244-0-1.shop.pod." + z.Domain(), "1--2.a.pod." + z.Domain(), "shop.svc." + z.Domain(), "1.0.244.10.in-addr.arpa.",
		"f.f.ip6.arpa.", "www.example.com.", "."}
	for _, line := range strings.Split(z.Text(), "\n") {
		if f := strings.Fields(line); len(f) > 4 && f[0] != ";" {
			known = append(known, f[0])
		}
	}
	return known
}

func randomQuery(r *rand.Rand, name string) *wire.Msg {
	q := new(wire.Msg)
	q.SetQuestion(name, pick(r, wire.TypeA, wire.TypeA, wire.TypeAAAA, wire.TypeSRV, wire.TypeSRV, wire.TypePTR, wire.TypeSOA, wire.TypeTXT, wire.TypeANY, wire.TypeNS, wire.TypeCNAME))
	q.RecursionDesired, q.CheckingDisabled, q.AuthenticatedData = r.IntN(2) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	if r.IntN(2) == 0 {
		q.SetEdns0(pick[uint16](r, 100, 512, 600, 1232, 4096, 65535), r.IntN(2) == 0)
		if r.IntN(3) == 0 {
			opt := q.IsEdns0()
			opt.Option = append(opt.Option, &wire.EDNS0_COOKIE{Code: wire.EDNS0COOKIE, Cookie: "0102030405060708"}, &wire.EDNS0_PADDING{Padding: make([]byte, r.IntN(20))})
		}
	}
	return q
}

// comparePacked tells whether z packs an answer, and checks it.
func comparePacked(t *testing.T, z *dns.Zone, req *wire.Msg, spin uint32) bool {
	t.Helper()
	raw, err := req.Pack()
	if err != nil {
		return false
	}
	var q dns.Query
	if kind := q.Read(raw); kind != dns.Plain {
		t.Errorf("%v\nis of kind %d", req, kind)
		return false
	}
	tcp := spin%5 == 0
	reply, rcode, ok := z.Pack([]byte("before"), &q, q.Limit(tcp), spin)
	if !ok {
		return false
	}
	reply = reply[len("before"):]
	got, plain := new(wire.Msg), z.Answer(dns.Question{Name: req.Question[0].Name, Type: dns.Type(req.Question[0].Qtype)})
	if err := got.Unpack(reply); err != nil {
		t.Errorf("%v\nunpack: %v", req, err)
		return true
	}
	if plain.NotOurs || plain.Chase != "" {
		t.Errorf("%v\nis for upstream, yet packed as\n%v", req, got)
		return true
	}
	want := render(req, plain)
	whole := [3][]string{spelled(want.Answer), spelled(want.Ns), spelled(want.Extra)}
	fit(want, req, tcp)
	checkHeader(t, req, got, want)
	if len(reply) > q.Limit(tcp) || int(rcode) != want.Rcode {
		t.Errorf("%v\n%d bytes, rcode %d", req, len(reply), rcode)
	}
	checkSections(t, req, got, want, whole)
	return true
}

func checkHeader(t *testing.T, req, got, want *wire.Msg) {
	t.Helper()
	g, w := got.MsgHdr, want.MsgHdr
	g.Truncated, w.Truncated = false, false // compression may differ by a record
	if g != w || got.Question[0] != req.Question[0] {
		t.Errorf("%v\ngot  %+v\nwant %+v", req, got, want)
	}
	a, b := got.IsEdns0(), want.IsEdns0()
	if (a == nil) != (b == nil) || a != nil && a.String() != b.String() {
		t.Errorf("%v\nOPT %v, want %v", req, a, b)
	}
}

// checkSections wants every record in an uncut reply, and only records of the whole in
// a cut one.
func checkSections(t *testing.T, req, got, want *wire.Msg, whole [3][]string) {
	t.Helper()
	sections := [3][]string{spelled(got.Answer), spelled(got.Ns), spelled(withoutOPT(got.Extra))}
	fewer := len(want.Answer) - len(got.Answer)
	if got.Truncated != want.Truncated || got.Truncated && (fewer > 1 || fewer < -2 && req.Question[0].Qtype != wire.TypePTR) {
		t.Errorf("%v\nTC %v with %d answers, want %v with %d", req, got.Truncated, len(got.Answer), want.Truncated, len(want.Answer))
	}
	for i, s := range sections {
		complete := !got.Truncated && (i < 2 || len(withoutOPT(want.Extra)) == len(whole[2]))
		if complete && !slices.Equal(s, whole[i]) || !subset(s, whole[i]) {
			t.Errorf("%v\nsection %d\ngot  %v\nwant %v", req, i, s, whole[i])
		}
	}
	for _, rr := range got.Answer {
		if rr.Header().Name != req.Question[0].Name {
			t.Errorf("%v\nanswers for %s", req, rr.Header().Name)
		}
	}
}

// spelled are the records in lower case, sorted: only the question's own spelling, which
// checkSections compares, is promised.
func spelled(rrs []wire.RR) []string {
	return lowered(sectionLines(rrs))
}

func lowered(list []string) []string {
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	slices.Sort(list)
	return list
}

// subset tells whether sorted a is part of sorted b, each as often.
func subset(a, b []string) bool {
	for _, s := range a {
		i, ok := slices.BinarySearch(b, s)
		if !ok {
			return false
		}
		b = b[i+1:]
	}
	return true
}

// FuzzPacked reads any bytes as a query: what is packed must be what the library makes
// of the plain answer, and whatever is read as plain the library must read too.
func FuzzPacked(f *testing.F) {
	yaml, err := os.ReadFile("../../dns/testdata/rows/cluster.yaml")
	if err != nil {
		f.Fatal(err)
	}
	o, problems := kube.Decode("cluster.yaml", yaml)
	if len(problems) > 0 {
		f.Fatal(problems)
	}
	snap, _ := model.Build(nil, o)
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range namesOf(z) {
		if raw, err := randomQuery(r, name).Pack(); err == nil {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var q dns.Query
		if q.Read(raw) != dns.Plain {
			return
		}
		req := new(wire.Msg)
		if err := req.Unpack(raw); err != nil || len(req.Question) != 1 {
			t.Fatalf("plain to us, not to the library: %v", err)
		}
		if again, err := req.Pack(); err == nil && !strings.ContainsAny(req.Question[0].Name, `\`) {
			req.Zero = false
			if q.Read(again) == dns.Plain {
				comparePacked(t, z, req, 1)
			}
		}
	})
}
