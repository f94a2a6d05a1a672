package kernel_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/nftables"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScratch(t *testing.T) {
	inNamespace(t)
	n := 10000
	fmt.Sscan(os.Getenv("N"), &n)
	mk := func(ex int) model.Objects {
		var o model.Objects
		port, name, proto := int32(8080), "http", corev1.ProtocolTCP
		for i := range n {
			svc := fmt.Sprintf("svc-%05d", i)
			o.Services = append(o.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: svc, Namespace: "bench"},
				Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250%250, 1+i%250), Ports: []corev1.ServicePort{{Name: name, Port: 80}}}})
			s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: svc, Namespace: "bench", Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
				Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
			for e := range 10 {
				n := i*10 + e
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)}})
			}
			o.EndpointSlices = append(o.EndpointSlices, s)
		}
		return o
	}
	o := mk(0)
	cfg := proxy.Config{Node: "node1", MasqueradeBit: 14, RejectUnknownPorts: true,
		Detector: proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}}
	mem := func(what string) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b, _ := os.ReadFile("/proc/self/status")
		rss := ""
		for _, l := range slices.Collect(func(y func(string) bool) {
			s := string(b)
			for len(s) > 0 {
				i := 0
				for i < len(s) && s[i] != '\n' { i++ }
				if !y(s[:i]) { return }
				if i < len(s) { i++ }
				s = s[i:]
			}
		}) {
			if len(l) > 5 && (l[:5] == "VmRSS" || l[:5] == "VmHWM") { rss += l + " " }
		}
		fmt.Printf("%-20s heap %d MB sys %d MB %s\n", what, m.HeapAlloc>>20, m.Sys>>20, rss)
	}
	mem("objects")
	snap, _ := model.Build(nil, o)
	mem("snapshot")
	plan, _ := proxy.New(nil, snap, cfg)
	mem("plan")
	t0 := time.Now()
	have := nftables.Compile(nil, plan)
	fmt.Println("compile", time.Since(t0))
	mem("compile")
	k := kernel.NewNFTables(0)
	t0 = time.Now()
	if err := k.Apply(nftables.Diff(nil, have)); err != nil { t.Fatal(err) }
	fmt.Println("cold apply", time.Since(t0))
	mem("applied")
	f, _ := os.Create("/tmp/nftx/cpu.out")
	pprof.StartCPUProfile(f)
	for i := range 8 {
		changed := o.EndpointSlices[n/2].DeepCopy()
		changed.Endpoints = append(changed.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.255.0.%d", i)}})
		o.EndpointSlices = slices.Clone(o.EndpointSlices)
		o.EndpointSlices[n/2] = changed
		t0 = time.Now()
		snap, _ = model.Build(snap, o)
		t1 := time.Now()
		plan, _ = proxy.New(plan, snap, cfg)
		t2 := time.Now()
		want := nftables.Compile(have, plan)
		t3 := time.Now()
		ch := nftables.Diff(have, want)
		t4 := time.Now()
		if err := k.Apply(ch); err != nil { t.Fatal(err) }
		t5 := time.Now()
		fmt.Println("build", t1.Sub(t0), "plan", t2.Sub(t1), "compile", t3.Sub(t2), "diff", t4.Sub(t3), "apply", t5.Sub(t4), "ops", len(ch.Ops))
		have = want
	}
	pprof.StopCPUProfile()
	f.Close()
	mem("changes")
	h, _ := os.Create("/tmp/nftx/heap.out")
	pprof.Lookup("heap").WriteTo(h, 0)
	h.Close()
	runtime.KeepAlive(have)
	runtime.KeepAlive(o)
}
