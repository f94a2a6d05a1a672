package manifests

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fairway/bench/apiserver"
	"fairway/packet"

	wire "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestFreshness makes Services one after the other and asks for each name every
// millisecond. At the moment it is answered the address must work already.
func TestFreshness(t *testing.T) {
	m := newMachine(t)
	api, kubeconfig := m.apiServer()
	m.startWith("--roles", "proxy,dns", "--kubeconfig", kubeconfig)
	names := m.resolver("127.0.0.1:10053")
	m.run("(?i)ok", "curl", "-s", "-m", "1", "http://127.0.0.1:10249/readyz")
	var took []time.Duration
	for i := range 60 {
		vip := netip.AddrFrom4([4]byte{10, 96, 2, byte(i + 1)})
		name := fmt.Sprintf("fresh-%d", i)
		began := time.Now()
		svc, slice := freshService(name, vip)
		for _, o := range []apiserver.Object{svc, slice} {
			if err := api.Put(o); err != nil {
				t.Fatal(err)
			}
		}
		for !names.has(name) {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%s is never answered", name)
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(began))
		p := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(vip, 80)}
		if o, err := m.lab.Send(p, time.Second); err != nil || o.Endpoint != podA {
			t.Errorf("%s is answered, and its address leads to %s, %v", name, o, err)
		}
	}
	slices.Sort(took)
	t.Logf("from the API server's word to the first answer: %s in the middle, %s at most of 95 %%, %s at most", took[30], took[56], took[59])
}

func freshService(name string, vip netip.Addr) (*corev1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: vip.String(), ClusterIPs: []string{vip.String()},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	return svc, &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(podA.Port()))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{podA.Addr().String()}, NodeName: ptr.To("node1"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}}
}

// apiServer serves an API with the node in the node's namespace.
func (m *machine) apiServer() (*apiserver.Server, string) {
	m.t.Helper()
	api := apiserver.New()
	for _, o := range []apiserver.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: node.String()}}}},
	} {
		if err := api.Put(o); err != nil {
			m.t.Fatal(err)
		}
	}
	var l net.Listener
	err := m.lab.Node.Do(func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	s := &http.Server{Handler: api}
	m.t.Cleanup(func() { s.Close() })
	go s.Serve(l) //nolint:errcheck // ends with the test
	path := filepath.Join(m.home, "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: 'http://%s'}}]\nusers: [{name: a, user: {}}]\n", l.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return api, path
}

// resolver asks one server of the node.
type resolver struct {
	t    *testing.T
	conn *wire.Conn
}

func (m *machine) resolver(addr string) *resolver {
	m.t.Helper()
	var c net.Conn
	err := m.lab.Node.Do(func() (err error) {
		c, err = net.Dial("udp4", addr)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	return &resolver{m.t, &wire.Conn{Conn: c}}
}

// has tells whether a Service of the namespace default has an address; no answer is no.
func (r *resolver) has(service string) bool {
	q := new(wire.Msg).SetQuestion(service+".default.svc.cluster.local.", wire.TypeA)
	_ = r.conn.SetDeadline(time.Now().Add(time.Second))
	if r.conn.WriteMsg(q) != nil {
		return false
	}
	a, err := r.conn.ReadMsg()
	return err == nil && a.Id == q.Id && len(a.Answer) > 0
}
