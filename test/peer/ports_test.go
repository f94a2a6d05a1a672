// Package peer runs kube-proxy itself and Fairway, one after the other, from the same
// configuration file against the same API server, and compares what they tell on their
// ports: what a dashboard, an alert, a balancer or a person with curl would see.
package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/bench/apiserver"
	"fairway/test/netlab"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	nodeAddr   = "172.30.0.11"
	healthPort = 32199
)

// kubeProxy is where bench/kubeproxy/build.sh puts the peer.
const kubeProxy = "../../bin/kube-proxy"

// node is a machine with an API server on it.
type node struct {
	t   *testing.T
	lab *netlab.Lab
	api *apiserver.Server
	url string
	dir string
}

func newNode(t *testing.T) *node {
	skip := t.Skip
	if os.Getenv("FAIRWAY_REQUIRE_PEER") == "1" {
		skip = t.Fatal
	}
	if _, err := os.Stat(kubeProxy); err != nil {
		skip("no bin/kube-proxy to compare with: make test-peer builds it")
	}
	if err := netlab.Missing(); err != nil {
		skip(err)
	}
	lab, err := netlab.New(netlab.Layout{NodeAddrs: []netip.Addr{netip.MustParseAddr(nodeAddr)}, Clients: []netip.Addr{netip.MustParseAddr("203.0.113.2")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Close)
	n := &node{t: t, lab: lab, api: apiserver.New(), dir: t.TempDir()}
	for _, o := range objects(time.Now().Add(-time.Hour)) {
		if err := n.api.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	err = lab.Node.Do(func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err == nil {
			n.url = "http://" + l.Addr().String()
			s := &http.Server{Handler: n.api}
			t.Cleanup(func() { s.Close() })
			go s.Serve(l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// objects are a node, a Service behind a balancer with one endpoint here, and one with an
// endpoint elsewhere only.
func objects(changed time.Time) []apiserver.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", CreationTimestamp: metav1.NewTime(changed.Truncate(time.Second))}
	}
	svc := func(name, ip string, port int32, health int32) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: ip, ClusterIPs: []string{ip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: health,
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyLocal),
			Ports:                 []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: port}}}}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "n"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddr}}}}
	return []apiserver.Object{n, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}},
		slice("here", "node1", "10.244.1.5", changed), svc("here", "10.96.0.80", 30080, healthPort),
		slice("there", "node2", "10.244.2.5", changed), svc("there", "10.96.0.81", 30081, healthPort+1)}
}

func slice(name, on, addr string, changed time.Time) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-1", UID: "2", Labels: map[string]string{discoveryv1.LabelServiceName: name},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: changed.Format(time.RFC3339Nano)}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr}, NodeName: ptr.To(on), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}}
}

// config is all kube-proxy's, less the limits of the whole machine.
func (n *node) config(mode string) string {
	n.t.Helper()
	kubeconfig := filepath.Join(n.dir, "kubeconfig")
	files := map[string]string{
		kubeconfig: fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: %q}}]\nusers: [{name: a, user: {}}]\n", n.url),
		filepath.Join(n.dir, mode): fmt.Sprintf("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\nclientConnection: {kubeconfig: %q}\n"+
			"hostnameOverride: node1\nclusterCIDR: 10.244.0.0/16\nenableProfiling: true\nconntrack: {maxPerCore: 0, min: 0}\noomScoreAdj: 0\n", mode, kubeconfig),
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	return filepath.Join(n.dir, mode)
}

// answer is what a path gave.
type answer struct {
	code          int
	kind, nosniff string
	weight        string // of healthCheckNodePorts
	body          string
}

// seen is all a program told.
type seen struct {
	paths   map[string]answer
	metrics map[string]string // name{labels} to type
}

// observe runs a program until it is calm, changes an endpoint, and asks everything.
func (n *node) observe(argv ...string) seen {
	n.t.Helper()
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := n.lab.Node.Do(cmd.Start); err != nil {
		n.t.Fatal(err)
	}
	defer func() {
		cancel()
		cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("%s:\n%s", argv[0], log.String())
		}
	}()
	n.until("http://127.0.0.1:10256/healthz", `"IPv4"`)
	n.until(fmt.Sprintf("http://%s:%d/", nodeAddr, healthPort), "localEndpoints")
	if err := n.api.Put(slice("here", "node1", "10.244.1.6", time.Now())); err != nil {
		n.t.Fatal(err)
	}
	n.until("http://127.0.0.1:10249/metrics", `kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 1`)
	s := seen{paths: map[string]answer{}}
	for name, url := range urls() {
		s.paths[name] = n.get(url)
	}
	s.metrics = metricsOf(n.t, n.get("http://127.0.0.1:10249/metrics").body)
	return s
}

func urls() map[string]string {
	const metrics, health = "http://127.0.0.1:10249", "http://127.0.0.1:10256"
	out := map[string]string{
		"health /healthz": health + "/healthz", "health /livez": health + "/livez", "health /": health + "/",
		"port of a local endpoint": fmt.Sprintf("http://%s:%d/", nodeAddr, healthPort), "port without one": fmt.Sprintf("http://%s:%d/healthz", nodeAddr, healthPort+1),
	}
	for _, p := range []string{"/proxyMode", "/healthz", "/healthz?verbose", "/healthz/ping", "/configz", "/metrics", "/metrics/slis", "/flagz", "/statusz", "/debug/pprof/",
		"/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/flags/v", "/nothing"} {
		out[p] = metrics + p
	}
	return out
}

func (n *node) get(url string) answer {
	var a answer
	err := n.lab.Node.Do(func() error {
		c := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.dial}}
		resp, err := c.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		h := resp.Header
		a = answer{resp.StatusCode, h.Get("Content-Type"), h.Get("X-Content-Type-Options"), h.Get("X-Load-Balancing-Endpoint-Weight"), string(text)}
		return err
	})
	if err != nil {
		return answer{body: err.Error()}
	}
	return a
}

// dial connects from the node's namespace: the client's own goroutines are not in it.
func (n *node) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.lab.Node.Do(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

func (n *node) until(url, part string) {
	n.t.Helper()
	var a answer
	for range 150 {
		if a = n.get(url); strings.Contains(a.body, part) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	n.t.Fatalf("%s never says %s:\n%.2000s", url, part, a.body)
}

func metricsOf(t *testing.T, text string) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range families {
		if !strings.HasPrefix(name, "kubeproxy_") {
			continue
		}
		out[name+labels(f.GetMetric()[0])] = f.GetType().String() + buckets(f.GetMetric()[0])
	}
	return out
}

func labels(m *dto.Metric) string {
	var names []string
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	return "{" + strings.Join(names, ",") + "}"
}

func buckets(m *dto.Metric) string {
	var out []string
	for _, b := range m.GetHistogram().GetBucket() {
		out = append(out, fmt.Sprint(b.GetUpperBound()))
	}
	return strings.Join(out, " ")
}

// TestPorts: paths, codes, headers, bodies and metrics are kube-proxy's.
func TestPorts(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "fairway")
	if _, err := os.Stat(kubeProxy); err == nil {
		if out, err := exec.Command("go", "build", "-o", bin, "fairway/cmd/fairway").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t)
			theirs := n.observe(kubeProxy, "--config", n.config(mode))
			for _, o := range objects(time.Now().Add(-time.Hour)) {
				if err := n.api.Put(o); err != nil {
					t.Fatal(err)
				}
			}
			ours := n.observe(bin, "run", "--config", n.config(mode))
			compare(t, theirs, ours)
		})
	}
}

func compare(t *testing.T, theirs, ours seen) {
	for _, name := range slices.Sorted(maps.Keys(theirs.paths)) {
		a, b := theirs.paths[name], ours.paths[name]
		if a.code != b.code || a.kind != b.kind || a.nosniff != b.nosniff || a.weight != b.weight || shape(name, a.body) != shape(name, b.body) {
			t.Errorf("%s\nkube-proxy: %d %s %s %s\n%.1500s\nfairway: %d %s %s %s\n%.1500s", name, a.code, a.kind, a.nosniff, a.weight, shape(name, a.body),
				b.code, b.kind, b.nosniff, b.weight, shape(name, b.body))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs.metrics)) {
		if ours.metrics[name] != theirs.metrics[name] {
			t.Errorf("metric %s is %s with kube-proxy, %q here", name, theirs.metrics[name], ours.metrics[name])
		}
	}
}

// shape is what of a body must be equal: of JSON the keys and all values but times, of
// texts that are each program's own nothing.
func shape(path, body string) string {
	switch path {
	case "/metrics", "/metrics/slis", "/flagz", "/statusz", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol":
		return ""
	case "/configz":
		return configShape(body)
	}
	return regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`).ReplaceAllString(body, "TIME")
}

// configShape is the keys of kube-proxy's part, and the values that both took from the
// same file; defaults may differ where deploy/README.md says so.
func configShape(body string) string {
	var all map[string]map[string]any
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		return body
	}
	var lines []string
	c := all["kubeproxy.config.k8s.io"]
	walk("", c, func(path string, v any) { lines = append(lines, path) })
	for _, f := range []string{"mode", "clusterCIDR", "kind", "apiVersion", "enableProfiling"} {
		lines = append(lines, fmt.Sprintf("%s=%v", f, c[f]))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func walk(path string, v any, leaf func(string, any)) {
	m, ok := v.(map[string]any)
	if !ok || strings.HasPrefix(path, ".featureGates") || strings.HasPrefix(path, ".logging") {
		leaf(path, v)
		return
	}
	for k, inner := range m {
		walk(path+"."+k, inner, leaf)
	}
}
