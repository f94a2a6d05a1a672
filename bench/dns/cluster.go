package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"fairway/bench/apiserver"
	"fairway/dns"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	namespace = "bench"
	// perHeadless are the endpoints of each headless Service; there is one such for ten
	// Services with an address.
	perHeadless = 5
)

// cluster is n Services with an address, two endpoints each, and n/10 headless ones; an
// API serves it.
type cluster struct {
	n       int
	objects model.Objects
	api     *apiserver.Server
	web     *http.Server
	url     string
}

func newCluster(n int) (*cluster, error) {
	c := &cluster{n: n, api: apiserver.New()}
	for _, ns := range []string{namespace, "default", "kube-system"} {
		c.objects.Namespaces = append(c.objects.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	for i := range n {
		c.add(service(fmt.Sprintf("svc-%06d", i), vip(i).String()), endpoints(fmt.Sprintf("svc-%06d", i), i*2, 2))
	}
	for i := range c.headless() {
		name := fmt.Sprintf("db-%06d", i)
		c.add(service(name, "None"), endpoints(name, 1<<19+i*perHeadless, perHeadless))
	}
	dnsService := service("kube-dns", vip(1<<19).String())
	dnsService.Namespace = "kube-system"
	c.objects.Services = append(c.objects.Services, dnsService)
	for _, o := range c.objects.Namespaces {
		if err := c.api.Put(o); err != nil {
			return nil, err
		}
	}
	for _, o := range c.objects.Services {
		if err := c.api.Put(o); err != nil {
			return nil, err
		}
	}
	for _, o := range c.objects.EndpointSlices {
		if err := c.api.Put(o); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.url, c.web = "http://"+l.Addr().String(), &http.Server{Handler: c.api}
	go func() { _ = c.web.Serve(l) }()
	return c, nil
}

func (c *cluster) close() { c.web.Close() }

func (c *cluster) headless() int { return max(1, c.n/10) }

func (c *cluster) add(s *corev1.Service, e *discoveryv1.EndpointSlice) {
	c.objects.Services, c.objects.EndpointSlices = append(c.objects.Services, s), append(c.objects.EndpointSlices, e)
}

func vip(i int) netip.Addr { return addrOf(10<<24 | 96<<16 + uint32(i) + 1) }

func addrOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			Selector: map[string]string{"app": name}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func endpoints(svc string, first, n int) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: svc + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for i := range n {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{addrOf(10<<24 | 128<<16 + uint32(first+i)).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			NodeName:   ptr.To("node1"),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-%d", svc, i)},
		})
	}
	return sl
}

// zone is what Fairway prints of the cluster, for servers that read zone files.
func (c *cluster) zone() string {
	snap, _ := model.Build(nil, c.objects)
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	return z.Text()
}

// change gives n endpoints a second another address until the function returned is
// called.
func (c *cluster) change(n int) (stop func()) {
	if n == 0 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second / time.Duration(n))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = c.api.Put(endpoints(fmt.Sprintf("svc-%06d", i%c.n), 1<<20+i%(1<<20), 2))
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// writeLoad writes 20,000 questions of one kind for dnsperf, the same for all servers.
func (c *cluster) writeLoad(path, load string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w, r := bufio.NewWriter(f), rand.New(rand.NewPCG(1, uint64(c.n)))
	for range 20000 {
		if err := c.question(w, r, load); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func (c *cluster) question(w *bufio.Writer, r *rand.Rand, load string) error {
	const domain = namespace + ".svc.cluster.local"
	svc, db := fmt.Sprintf("svc-%06d", r.IntN(c.n)), fmt.Sprintf("db-%06d", r.IntN(c.headless()))
	switch load {
	case "hit":
		fmt.Fprintf(w, "%s.%s A\n", svc, domain)
	case "pair":
		fmt.Fprintf(w, "%s.%s A\n%s.%s AAAA\n", svc, domain, svc, domain)
	case "walk": // what ndots:5 makes of a public name
		fmt.Fprintf(w, "www.example.com.%s A\nwww.example.com.svc.cluster.local A\nwww.example.com.cluster.local A\n", domain)
	case "headless":
		fmt.Fprintf(w, "%s.%s A\n", db, domain)
	case "srv":
		fmt.Fprintf(w, "_http._tcp.%s.%s SRV\n", svc, domain)
	case "ptr":
		b := vip(r.IntN(c.n)).As4()
		fmt.Fprintf(w, "%d.%d.%d.%d.in-addr.arpa PTR\n", b[3], b[2], b[1], b[0])
	case "mixed":
		switch n := r.IntN(10); {
		case n < 7:
			return c.question(w, r, "hit")
		case n < 9:
			fmt.Fprintf(w, "gone-%d.%s A\n", r.IntN(1<<30), domain)
		default:
			return c.question(w, r, "headless")
		}
	default:
		return fmt.Errorf("no load %q", load)
	}
	return nil
}
