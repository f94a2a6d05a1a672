package dnsserver

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
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

// TestWireAgreesWithAnswer asks for every name of the zone and some that are not, in
// every type, over UDP and TCP, and compares the message with dns.Answer.
func TestWireAgreesWithAnswer(t *testing.T) {
	z := buildZone(t, objects)
	_, addr := serve(t, z, Config{})
	names := map[string]bool{"nope.default.svc.cluster.local.": true, "svc.cluster.local.": true, "x.nginx-svc.default.svc.cluster.local.": true,
		"_http._tcp.Nginx-SVC.default.svc.cluster.local.": true, "1-2-3-4.default.pod.cluster.local.": true, "_tcp.db.default.svc.cluster.local.": true}
	for _, line := range strings.Split(z.Text(), "\n") {
		if f := strings.Fields(line); len(f) > 4 && f[0] != ";" {
			names[f[0]] = true
		}
	}
	asked := 0
	for name := range names {
		for _, qt := range []uint16{wire.TypeA, wire.TypeAAAA, wire.TypeSRV, wire.TypePTR, wire.TypeCNAME, wire.TypeTXT, wire.TypeSOA, wire.TypeNS, wire.TypeMX, wire.TypeANY} {
			want := z.Answer(dns.Question{Name: name, Type: dns.Type(qt)})
			if want.NotOurs || want.Chase != "" {
				continue
			}
			for _, proto := range []string{"udp", "tcp"} {
				m := exchange(t, addr, query{name: name, qtype: qt, net: proto, bufsz: 4096})
				asked++
				if m.Rcode != int(want.Rcode) || !m.Authoritative || m.RecursionAvailable || !m.RecursionDesired || m.Question[0].Name != name {
					t.Errorf("%s %d %s: header\n%v", name, qt, proto, m)
				}
				for _, s := range []struct {
					got  []wire.RR
					want []dns.Record
				}{{m.Answer, want.Answer}, {m.Ns, want.Authority}, {m.Extra, want.Additional}} {
					if g, w := sectionLines(s.got), recordLines(s.want); !slices.Equal(g, w) {
						t.Errorf("%s %d %s: got %v want %v", name, qt, proto, g, w)
					}
				}
			}
		}
	}
	if asked < 200 {
		t.Errorf("only %d compared", asked)
	}
}

// TestTruncation is the table of sizes: 200 A records.
func TestTruncation(t *testing.T) {
	_, addr := serve(t, buildZone(t, big(200)), Config{})
	for _, tc := range []struct {
		net     string
		bufsz   uint16
		answers int
		tc      bool
		bytes   int // of the reply as sent, 0 for not compared
	}{
		{"udp", 0, 29, true, 510},
		{"udp", 100, 28, true, 0}, // less than 512 counts as 512
		{"udp", 512, 28, true, 0},
		{"udp", 1232, 73, true, 0},
		{"udp", 4096, 200, false, 0},
		{"tcp", 0, 200, false, 8846},
		{"tcp", 512, 200, false, 0},
	} {
		q := new(wire.Msg)
		q.SetQuestion("big.demo01.svc.cluster.local.", wire.TypeA)
		if tc.bufsz > 0 {
			q.SetEdns0(tc.bufsz, false)
		}
		raw := rawExchange(t, addr, tc.net, q)
		m := new(wire.Msg)
		if err := m.Unpack(raw); err != nil {
			t.Fatal(err)
		}
		if len(m.Answer) != tc.answers || m.Truncated != tc.tc || tc.bytes > 0 && len(raw) != tc.bytes {
			t.Errorf("%s bufsize %d: %d answers, TC %v, %d bytes; want %+v", tc.net, tc.bufsz, len(m.Answer), m.Truncated, len(raw), tc)
		}
		if limit := max(512, int(tc.bufsz)); tc.net == "udp" && len(raw) > limit {
			t.Errorf("bufsize %d: %d bytes sent", tc.bufsz, len(raw))
		}
		opt := m.IsEdns0()
		if (opt != nil) != (tc.bufsz > 0) {
			t.Errorf("bufsize %d: OPT in reply: %v", tc.bufsz, opt)
		}
		if opt != nil && opt.UDPSize() != 1232 {
			t.Errorf("advertises %d", opt.UDPSize())
		}
	}
}

// TestAdditionalCutIsNotTruncation asks for SRV records that fit without addresses.
func TestAdditionalCutIsNotTruncation(t *testing.T) {
	_, addr := serve(t, buildZone(t, big(7)), Config{})
	m := exchange(t, addr, query{name: "_http._tcp.big.demo01.svc.cluster.local", qtype: wire.TypeSRV, net: "udp"})
	if len(m.Answer) != 7 || len(m.Extra) >= 7 || m.Truncated {
		t.Errorf("%d answers, %d additional, TC %v", len(m.Answer), len(m.Extra), m.Truncated)
	}
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

func TestBeforeFirstZone(t *testing.T) {
	s, addr := serve(t, nil, Config{})
	if m := exchange(t, addr, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeA}); m.Rcode != wire.RcodeServerFailure {
		t.Errorf("got %v", m)
	}
	if code := probeReady(s); s.Ready() || code != 503 {
		t.Errorf("ready: %v, %d", s.Ready(), code)
	}
	s.SetZone(buildZone(t, objects))
	if m := exchange(t, addr, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeA}); len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
	if code := probeReady(s); !s.Ready() || code != 200 {
		t.Errorf("ready: %v, %d", s.Ready(), code)
	}
}

func probeReady(s *Server) int {
	w := httptest.NewRecorder()
	s.ReadyHandler().ServeHTTP(w, httptest.NewRequest("GET", "/ready", nil))
	return w.Code
}

func TestOddQueries(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{Version: "fairway-test", Hostname: "node1"})
	name := "nginx-svc.default.svc.cluster.local."
	for _, tc := range []struct {
		what  string
		q     query
		rcode int
	}{
		{"EDNS 1", query{name: name, qtype: wire.TypeA, bufsz: 1232, change: func(m *wire.Msg) { m.IsEdns0().SetVersion(1) }}, wire.RcodeBadVers},
		{"AXFR", query{name: "cluster.local.", qtype: wire.TypeAXFR, net: "tcp"}, wire.RcodeRefused},
		{"IXFR", query{name: "cluster.local.", qtype: wire.TypeIXFR}, wire.RcodeRefused},
		{"NOTIFY", query{name: "cluster.local.", qtype: wire.TypeSOA, change: func(m *wire.Msg) { m.Opcode = wire.OpcodeNotify }}, wire.RcodeNotImplemented},
		{"UPDATE", query{name: "cluster.local.", qtype: wire.TypeSOA, change: func(m *wire.Msg) { m.Opcode = wire.OpcodeUpdate }}, wire.RcodeNotImplemented},
		{"class HESIOD", query{name: name, qtype: wire.TypeA, change: func(m *wire.Msg) { m.Question[0].Qclass = wire.ClassHESIOD }}, wire.RcodeRefused},
		{"no route", query{name: "www.example.com.", qtype: wire.TypeA}, wire.RcodeRefused},
		{"two questions", query{name: name, qtype: wire.TypeA, change: func(m *wire.Msg) { m.Question = append(m.Question, m.Question[0]) }}, wire.RcodeFormatError},
		{"CHAOS else", query{name: "authors.bind.", qtype: wire.TypeTXT, change: chaosClass}, wire.RcodeRefused},
	} {
		if m := exchange(t, addr, tc.q); m.Rcode != tc.rcode || len(m.Answer) > 0 {
			t.Errorf("%s: %v", tc.what, m)
		}
	}
	m := exchange(t, addr, query{name: "version.bind.", qtype: wire.TypeTXT, change: chaosClass})
	if len(m.Answer) != 1 || m.Answer[0].(*wire.TXT).Txt[0] != "fairway-test" {
		t.Errorf("version.bind: %v", m)
	}
	m = exchange(t, addr, query{name: name, qtype: wire.TypeA, change: func(m *wire.Msg) { m.RecursionDesired = false }})
	if m.RecursionDesired {
		t.Errorf("RD is not copied: %v", m)
	}
}

func chaosClass(m *wire.Msg) { m.Question[0].Qclass = wire.ClassCHAOS }

// TestGarbage sends what is no message: the server must live on.
func TestGarbage(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{})
	for _, b := range []string{"", "x", strings.Repeat("\xc0", 40), "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01", strings.Repeat("\x00", 12)} {
		c, err := net.Dial("udp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(b))
		c.Close()
	}
	if m := exchange(t, addr, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeA}); len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
}

// TestWildcardSource asks a wildcard socket by one of several addresses: the reply
// must come from that address, or a connected client never sees it.
func TestWildcardSource(t *testing.T) {
	port := freePort(t, "127.0.53.2").Port()
	_, _ = serve(t, buildZone(t, objects), Config{Addresses: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), port)}})
	for _, a := range []string{"127.0.53.2", "127.0.53.9"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(a), port)
		if m := exchange(t, to, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeA}); len(m.Answer) != 1 {
			t.Errorf("got %v", m)
		}
	}
}

// TestAddressesChange adds and drops addresses under way; 192.0.2.53 is on no node, so
// binding it shows that sockets are bound freely (nothing is sent).
func TestAddressesChange(t *testing.T) {
	a, b := freePort(t, "127.0.53.3"), freePort(t, "127.0.53.4")
	s, _ := serve(t, buildZone(t, objects), Config{Addresses: []netip.AddrPort{a}, Sockets: 2})
	absent := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.53"), b.Port())
	if err := s.SetAddresses([]netip.AddrPort{b, absent}); err != nil {
		t.Fatal(err)
	}
	if m := exchange(t, b, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeA}); len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
	if c, err := net.DialTimeout("tcp", a.String(), time.Second); err == nil {
		c.Close()
		t.Errorf("%s still listens", a)
	}
}

func TestTCPIdle(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{TCPIdle: 200 * time.Millisecond})
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	start := time.Now()
	if n, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) || time.Since(start) > 3*time.Second {
		t.Errorf("a silent connection stays: %d bytes, %v after %v", n, err, time.Since(start))
	}
}

func TestGoResolver(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{})
	ctx := context.Background()
	for _, network := range []string{"udp", "tcp"} {
		r := &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr.String())
		}}
		hosts, err := r.LookupHost(ctx, "nginx-svc.default.svc.cluster.local.")
		check(t, network+" host", hosts, err, "10.96.0.80", "fd00:96::80")
		_, srv, err := r.LookupSRV(ctx, "sql", "tcp", "db.default.svc.cluster.local.")
		var targets []string
		for _, s := range srv {
			targets = append(targets, fmt.Sprint(s.Target, s.Port))
		}
		check(t, network+" srv", targets, err, "10-244-0-4.db.default.svc.cluster.local.3306", "db-0.db.default.svc.cluster.local.3306", "db-1.db.default.svc.cluster.local.3306")
		names, err := r.LookupAddr(ctx, "10.244.0.2")
		check(t, network+" ptr", names, err, "db-0.db.default.svc.cluster.local.")
		names, err = r.LookupAddr(ctx, "fd00:96::80")
		check(t, network+" ptr6", names, err, "nginx-svc.default.svc.cluster.local.")
		txt, err := r.LookupTXT(ctx, "dns-version.cluster.local.")
		check(t, network+" txt", txt, err, "1.1.0")
		cname, err := r.LookupCNAME(ctx, "inside.default.svc.cluster.local.")
		check(t, network+" cname", []string{cname}, err, "nginx-svc.default.svc.cluster.local.")
		_, err = r.LookupHost(ctx, "gone.default.svc.cluster.local.")
		if dnsErr, ok := err.(*net.DNSError); !ok || !dnsErr.IsNotFound {
			t.Errorf("%s: %v", network, err)
		}
	}
}

func check(t *testing.T, what string, got []string, err error, want ...string) {
	t.Helper()
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: got %v, %v; want %v", what, got, err, want)
	}
}

// TestDig runs the queries of the Kubernetes conformance probes with dig.
func TestDig(t *testing.T) {
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("dig (bind9-dnsutils) is not installed")
	}
	_, addr := serve(t, buildZone(t, objects), Config{})
	search := []string{"+search", "+ndots=5", "+noall", "+answer", "+short", "+domain=default.svc.cluster.local"}
	for _, tcp := range []string{"+notcp", "+tcp"} {
		for _, tc := range []struct {
			args []string
			want string
		}{
			{append(search, "nginx-svc", "A"), "10.96.0.80"},
			{append(search, "nginx-svc", "AAAA"), "fd00:96::80"},
			{append(search, "_http._tcp.nginx-svc", "SRV"), "0 50 80 nginx-svc.default.svc.cluster.local."},
			{append(search, "db-1.db", "A"), "10.244.0.3"},
			{append(search, "external-svc", "CNAME"), "www.example.com."},
			{[]string{"+short", "-x", "10.96.0.80"}, "nginx-svc.default.svc.cluster.local."},
			{[]string{"+short", "-x", "fd00:96::80"}, "nginx-svc.default.svc.cluster.local."},
			{[]string{"+short", "-x", "10.244.0.4"}, "10-244-0-4.db.default.svc.cluster.local."},
			{[]string{"+short", "cluster.local", "NS"}, "kube-dns.kube-system.svc.cluster.local."},
			{[]string{"+short", "dns-version.cluster.local", "TXT"}, `"1.1.0"`},
		} {
			if got := dig(t, addr, append(tc.args, tcp)...); got != tc.want {
				t.Errorf("dig %v: got %q, want %q", tc.args, got, tc.want)
			}
		}
	}
	if out := dig(t, addr, "+cookie", "gone.default.svc.cluster.local", "A"); !strings.Contains(out, "status: NXDOMAIN") || strings.Contains(out, "WARNING: Message parser") {
		t.Errorf("dig: %s", out)
	}
}

func dig(t *testing.T, addr netip.AddrPort, args ...string) string {
	t.Helper()
	args = append([]string{"@" + addr.Addr().String(), "-p", fmt.Sprint(addr.Port()), "+tries=1", "+time=5", "-r"}, args...)
	out, err := exec.Command("dig", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
