package kernel_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/test/netlab"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIPVSScale measures a cold start and a Service more, at the sizes FAIRWAY_IPVS_SCALE
// names (1000,5000), with ten endpoints each. Times are the virtual machine's.
func TestIPVSScale(t *testing.T) {
	sizes := os.Getenv("FAIRWAY_IPVS_SCALE")
	if sizes == "" {
		t.Skip("FAIRWAY_IPVS_SCALE=1000,5000 measures")
	}
	requireIPVS(t)
	for _, word := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		measureIPVS(t, n)
	}
}

func measureIPVS(t *testing.T, n int) {
	lab, err := netlab.New(netlab.Layout{})
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	b, _, err := loop.OpenIPVS(context.Background(), lab.Node.NS(), "node1", kernel.AnyVariant)
	if err != nil {
		t.Fatal(err)
	}
	cfg := proxy.Config{Node: "node1", MasqueradeBit: 14, RejectUnknownPorts: true}.WithMode(proxy.IPVS)
	var snap *model.Snapshot
	var plan *proxy.Plan
	objects := model.Objects{}
	for i := range n {
		addService(&objects, i, 10)
	}
	step := func(what string) {
		snap, _ = model.Build(snap, objects)
		plan, _ = proxy.New(plan, snap, cfg)
		start := time.Now()
		apply(t, b, plan)
		t.Logf("%d Services x 10: %s in %.1f ms", n, what, float64(time.Since(start).Microseconds())/1000)
	}
	step("cold start")
	addService(&objects, n, 10)
	step("a Service more")
	objects.EndpointSlices[0] = slice(0, 11)
	step("an endpoint more")
	objects.Services, objects.EndpointSlices = objects.Services[1:], objects.EndpointSlices[1:]
	step("a Service less")
	start := time.Now()
	if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Fatalf("audit: %v %q", err, lines)
	}
	t.Logf("%d Services x 10: audit in %.1f ms", n, float64(time.Since(start).Microseconds())/1000)
}

func addService(o *model.Objects, i, endpoints int) {
	ip := fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250)
	o.Services = append(o.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("svc%d", i), Namespace: "ns"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	})
	o.EndpointSlices = append(o.EndpointSlices, slice(i, endpoints))
}

func slice(i, endpoints int) *discoveryv1.EndpointSlice {
	name, port, proto := "", int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("svc%d-1", i), Namespace: "ns",
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc%d", i)}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
	}
	for k := range endpoints {
		n := i*16 + k
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+n/65536, n/256%256, n%256)}})
	}
	return s
}
