package dnsserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/dns"
	"fairway/kube"
	"fairway/model"

	wire "github.com/miekg/dns"
)

const objects = `
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.2, clusterIPs: [10.96.0.2, "fd00:96::2"], ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}
---
apiVersion: v1
kind: Service
metadata: {name: nginx-svc, namespace: default}
spec: {clusterIP: 10.96.0.80, clusterIPs: [10.96.0.80, "fd00:96::80"], ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: default}
spec: {clusterIP: None, ports: [{name: sql, port: 3306}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: default, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 3306, protocol: TCP}]
endpoints: [{addresses: [10.244.0.2], hostname: db-0}, {addresses: [10.244.0.3], hostname: db-1}, {addresses: [10.244.0.4]}]
---
apiVersion: v1
kind: Service
metadata: {name: external-svc, namespace: default}
spec: {type: ExternalName, externalName: www.example.com}
---
apiVersion: v1
kind: Service
metadata: {name: inside, namespace: default}
spec: {type: ExternalName, externalName: nginx-svc.default.svc.cluster.local}
`

func buildZone(t *testing.T, yaml string) *dns.Zone {
	t.Helper()
	o, problems := kube.Decode("objects.yaml", []byte(yaml))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	snap, problems := model.Build(nil, o)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	z, _ := dns.Build(nil, snap, dns.DefaultConfig())
	return z
}

// big is a headless Service of n ready endpoints, big.demo01 in the cluster domain.
func big(n int) string {
	var b strings.Builder
	b.WriteString(`
apiVersion: v1
kind: Service
metadata: {name: big, namespace: demo01}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: big-1, namespace: demo01, labels: {kubernetes.io/service-name: big}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
`)
	for i := range n {
		fmt.Fprintf(&b, "- {addresses: [10.244.%d.%d]}\n", 1+i/250, 1+i%250)
	}
	return b.String()
}

// freePort finds a port that nobody uses on addr, for UDP and TCP.
func freePort(t *testing.T, addr string) netip.AddrPort {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", addr+":0")
		if err != nil {
			t.Fatal(err)
		}
		ap := netip.MustParseAddrPort(l.Addr().String())
		l.Close()
		if pc, err := net.ListenPacket("udp", ap.String()); err == nil {
			pc.Close()
			return ap
		}
	}
	t.Fatal("no free port")
	return netip.AddrPort{}
}

// serve runs a server on a loopback address of its own until the test ends.
func serve(t *testing.T, z *dns.Zone, cfg Config) (*Server, netip.AddrPort) {
	t.Helper()
	if len(cfg.Addresses) == 0 {
		cfg.Addresses = []netip.AddrPort{freePort(t, "127.0.53.1")}
	}
	s := New(cfg)
	if z != nil {
		s.SetZone(z)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	eventually(t, "server does not accept", func() bool { return s.accepting.Load() })
	return s, cfg.Addresses[0]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal(what)
}

type query struct {
	name   string
	qtype  uint16
	net    string
	bufsz  uint16 // 0 is no EDNS
	from   string // the client's address
	change func(*wire.Msg)
}

func exchange(t *testing.T, to netip.AddrPort, q query) *wire.Msg {
	t.Helper()
	m := new(wire.Msg)
	m.SetQuestion(wire.Fqdn(q.name), q.qtype)
	if q.bufsz > 0 {
		m.SetEdns0(q.bufsz, false)
	}
	if q.change != nil {
		q.change(m)
	}
	c := wire.Client{Net: q.net, Timeout: 5 * time.Second, UDPSize: 65535}
	if a, err := netip.ParseAddr(q.from); err == nil {
		c.Dialer = &net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0))}
		if q.net == "tcp" {
			c.Dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
		}
	}
	r, _, err := c.Exchange(m, to.String())
	if err != nil {
		t.Fatalf("%s %s over %s: %v", q.name, wire.TypeToString[q.qtype], q.net, err)
	}
	return r
}

// lines gives a section in the zone's own words, sorted.
func sectionLines(rrs []wire.RR) []string {
	var out []string
	for _, rr := range withoutOPT(rrs) {
		out = append(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	slices.Sort(out)
	return out
}

func recordLines(list []dns.Record) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

func rawExchange(t *testing.T, to netip.AddrPort, network string, q *wire.Msg) []byte {
	t.Helper()
	c, err := wire.DialTimeout(network, to.String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.UDPSize = 65535
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if err := c.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	raw, err := c.ReadMsgHeader(nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
