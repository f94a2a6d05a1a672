package http_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	std "net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"fairway/ingress"
	"fairway/model"
	"fairway/server/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world is a Server on loopback with real back ends: a Pod 10.x.y.z is a listener on
// 127.x.y.z.
type world struct {
	t        testing.TB
	srv      *http.Server
	objects  model.Objects
	snap     *model.Snapshot
	table    *ingress.Table
	options  ingress.Config
	http     string
	https    string
	log      *syncBuffer
	registry *prometheus.Registry
	stop     func() error // ends Serve and gives its error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newWorld(t testing.TB, change func(*http.Config)) *world {
	w := &world{t: t, log: &syncBuffer{}, registry: prometheus.NewRegistry()}
	w.options.WithoutClass = true
	cfg := http.Default()
	any := netip.MustParseAddrPort("127.0.0.1:0")
	cfg.HTTP, cfg.HTTPS = []netip.AddrPort{any}, []netip.AddrPort{any}
	cfg.AccessLog, cfg.Registerer = w.log, w.registry
	cfg.DrainTimeout = 2 * time.Second
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		rest, ok := strings.CutPrefix(address, "10.")
		if !ok {
			return nil, fmt.Errorf("%s is not a Pod of this test", address)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, "127."+rest)
	}
	if change != nil {
		change(&cfg)
	}
	w.srv = http.New(cfg)
	if err := w.srv.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	plain, secure := w.srv.Addrs()
	w.http, w.https = plain[0].String(), secure[0].String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.srv.Serve(ctx) }()
	w.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// pod starts a back end that tells what it saw, and returns its endpoint.
func (w *world) pod(addr string, h std.Handler) netip.AddrPort {
	l, err := net.Listen("tcp", "127."+strings.TrimPrefix(addr, "10.")+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	if h == nil {
		h = echo(addr)
	}
	srv := &std.Server{Handler: h}
	go srv.Serve(l) //nolint:errcheck // ends with Close
	w.t.Cleanup(func() { srv.Close() })
	return netip.AddrPortFrom(netip.MustParseAddr(addr), l.Addr().(*net.TCPAddr).AddrPort().Port())
}

// seen is what an echo back end answers.
type seen struct {
	Pod, Method, URI, Host, Proto, Body string
	Header                              std.Header
}

func echo(pod string) std.Handler {
	return std.HandlerFunc(func(w std.ResponseWriter, r *std.Request) {
		body, _ := io.ReadAll(r.Body)
		out, _ := json.Marshal(seen{Pod: pod, Method: r.Method, URI: r.RequestURI, Host: r.Host, Proto: r.Proto, Header: r.Header, Body: string(body)})
		w.Header().Set("Content-Type", "application/json")
		w.Write(out) //nolint:errcheck // the test's client sees
	})
}

// service makes a Service on port 80 with one slice per endpoint.
func (w *world) service(name string, eps ...netip.AddrPort) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	w.objects.Services = append(w.objects.Services, &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}})
	w.endpoints(name, eps...)
}

func (w *world) endpoints(name string, eps ...netip.AddrPort) {
	var kept []*discoveryv1.EndpointSlice
	for _, s := range w.objects.EndpointSlices {
		if s.Labels[discoveryv1.LabelServiceName] != name {
			kept = append(kept, s)
		}
	}
	for i, e := range eps {
		port, empty := int32(e.Port()), ""
		kept = append(kept, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &empty, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{e.Addr().String()}}},
		})
	}
	w.objects.EndpointSlices = kept
}

// route makes an Ingress for host and path (Prefix); notes are pairs of nginx
// annotation and value.
func (w *world) route(host, path, service string, notes ...string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("ing-%d", len(w.objects.Ingresses)), Annotations: map[string]string{}},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: path, PathType: &prefix, Backend: backendFor(service)}}},
		}}}},
	}
	for k := 0; k+1 < len(notes); k += 2 {
		i.Annotations["nginx.ingress.kubernetes.io/"+notes[k]] = notes[k+1]
	}
	w.objects.Ingresses = append(w.objects.Ingresses, i)
	return i
}

func backendFor(service string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 80}}}
}

// secure gives the Ingress TLS with a new certificate for its host.
func (w *world) secure(i *networkingv1.Ingress, secret string, hosts ...string) *x509.Certificate {
	i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: hosts, SecretName: secret}}
	return w.secret(secret, hosts...)
}

func (w *world) secret(name string, hosts ...string) *x509.Certificate {
	leaf, crt, key := pair(w.t, hosts...)
	var kept []*corev1.Secret
	for _, s := range w.objects.Secrets {
		if s.Name != name {
			kept = append(kept, s)
		}
	}
	w.objects.Secrets = append(kept, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": crt, "tls.key": key}})
	return leaf
}

func pair(t testing.TB, hosts ...string) (leaf *x509.Certificate, crt, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ = x509.ParseCertificate(der)
	priv, _ := x509.MarshalPKCS8PrivateKey(k)
	return leaf, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: priv})
}

// apply builds the table of the objects and puts it in force.
func (w *world) apply() []model.Problem {
	var problems []model.Problem
	w.snap, _ = model.Build(w.snap, w.objects)
	w.table, problems = ingress.Build(w.table, w.snap, w.options)
	w.srv.SetTable(w.table)
	return problems
}

// client follows no redirects and trusts the given certificates; its connections go to
// the server whatever the host.
func (w *world) client(trust ...*x509.Certificate) *std.Client {
	roots := x509.NewCertPool()
	for _, c := range trust {
		roots.AddCert(c)
	}
	tr := &std.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			to := w.http
			if strings.HasSuffix(address, ":443") {
				to = w.https
			}
			var d net.Dialer
			return d.DialContext(ctx, network, to)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 32,
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &std.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*std.Request, []*std.Request) error { return std.ErrUseLastResponse }}
}

func (w *world) get(c *std.Client, url string) (*std.Response, string) {
	w.t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body)
}

func parse(t testing.TB, body string) (s seen) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return s
}

// raw sends bytes over one connection and reads one answer.
func (w *world) raw(request string) (*std.Response, string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.http)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // the read says
	if _, err := io.WriteString(c, request); err != nil {
		w.t.Fatal(err)
	}
	resp, err := std.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}
