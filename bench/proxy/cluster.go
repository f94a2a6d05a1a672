package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairway/loop"
	"fairway/model"
	"fairway/proxy"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// repeats is how often a small step is measured.
const repeats = 5

// cluster is the objects, and what was made of them so far, as the loop keeps it.
type cluster struct {
	objects   model.Objects
	endpoints int
	cfg       proxy.Config
	snap      *model.Snapshot
	plan      *proxy.Plan
}

func nodeIPs() []netip.Addr { return []netip.Addr{netip.MustParseAddr("172.30.0.11")} }

func newCluster(services, endpoints int) *cluster {
	c := &cluster{endpoints: endpoints, cfg: proxy.Config{
		Node: "node1", NodeIPs: nodeIPs(), MasqueradeBit: 14, RejectUnknownPorts: true,
		NodePortAddresses: proxy.NodePortAddresses{Primary: true},
		Detector:          proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}},
	}}
	for i := range services {
		c.put(i, endpoints)
	}
	return c
}

// put adds Service i; no two Services share an endpoint.
func (c *cluster) put(i, endpoints int) {
	name := fmt.Sprintf("svc-%05d", i)
	c.objects.Services = append(c.objects.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "bench"},
		Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	})
	c.objects.EndpointSlices = append(c.objects.EndpointSlices, slice(name, i, endpoints))
}

func slice(name string, i, endpoints int) *discoveryv1.EndpointSlice {
	port, portName, proto := int32(8080), "http", corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name + "-a", Namespace: "bench", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &proto}},
	}
	for e := range endpoints {
		n := i*16 + e
		node := fmt.Sprintf("node%d", 1+n%100)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)}, NodeName: &node})
	}
	return s
}

// toggleEndpoint gives Service i one endpoint more; it has place for six.
func (c *cluster) toggleEndpoint(i int) {
	c.objects.EndpointSlices = slices.Clone(c.objects.EndpointSlices)
	k := len(c.objects.EndpointSlices) / 2
	old := c.objects.EndpointSlices[k]
	c.objects.EndpointSlices[k] = slice(old.Labels[discoveryv1.LabelServiceName], k, c.endpoints+1+i)
}

func (c *cluster) addService(int) {
	c.objects.Services, c.objects.EndpointSlices = slices.Clone(c.objects.Services), slices.Clone(c.objects.EndpointSlices)
	c.put(len(c.objects.Services), c.endpoints)
}

func (c *cluster) removeService(int) {
	n := len(c.objects.Services) - 1
	c.objects.Services, c.objects.EndpointSlices = slices.Clone(c.objects.Services[:n]), slices.Clone(c.objects.EndpointSlices[:n])
}

// apply does what a pass of the loop does, from objects to rules in force.
func (c *cluster) apply(b loop.Backend) (took, error) {
	start, cpu := time.Now(), cpuTime()
	c.snap, _ = model.Build(c.snap, c.objects)
	c.plan, _ = proxy.New(c.plan, c.snap, c.cfg)
	problems, err := b.Apply(context.Background(), c.plan)
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("%s", problems[0])
	}
	return took{total: time.Since(start), cpu: cpuTime() - cpu}, err
}

// cpuTime is what this process and its ended children have used.
func cpuTime() time.Duration {
	sum := time.Duration(0)
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

func (c *cluster) median(b loop.Backend, change func(int)) (took, error) {
	var all []took
	for i := range repeats {
		change(i)
		t, err := c.apply(b)
		if err != nil {
			return t, err
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y took) int { return int(x.total - y.total) })
	return all[len(all)/2], nil
}

// restart is the first pass of a new process that finds the rules in place.
func (c *cluster) restart(b loop.Backend) (took, error) {
	c.snap, c.plan = nil, nil
	return c.apply(b)
}
