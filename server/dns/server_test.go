package dnsserver

import (
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

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
					// The question's spelling is kept in its own name; below it is free.
					if g, w := spelled(s.got), lowered(recordLines(s.want)); !slices.Equal(g, w) {
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
		{"tcp", 0, 200, false, 3246},
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
		{"two OPT records", query{name: name, qtype: wire.TypeA, bufsz: 1232, change: func(m *wire.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }}, wire.RcodeFormatError},
		{"two OPT records outside", query{name: "www.example.com.", qtype: wire.TypeA, bufsz: 1232, change: func(m *wire.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }}, wire.RcodeFormatError},
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
	for _, b := range []string{"", "x", strings.Repeat("\xc0", 40), "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01",
		"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", // a header that counts a question that is not there
		"\x00\x01\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("\x00", 12)} {
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

// TestMutated changes bytes of good queries at random, by UDP and TCP.
func TestMutated(t *testing.T) {
	s, addr := serve(t, buildZone(t, objects), Config{})
	good := new(wire.Msg)
	good.SetQuestion("nginx-svc.default.svc.cluster.local.", wire.TypeA)
	good.SetEdns0(1232, true)
	raw, err := good.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	c, err := net.Dial("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20000 {
		b := slices.Clone(raw)
		for range 1 + r.IntN(5) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		if r.IntN(3) == 0 {
			b = b[:r.IntN(len(b))]
		}
		_, _ = c.Write(b) // some are lost: the server need not keep up
		for _, tcp := range []bool{false, true} {
			req := new(wire.Msg)
			if req.Unpack(b) != nil || len(req.Question) != 1 || s.forward.routeFor(req.Question[0].Name) != nil {
				continue
			}
			fit(s.reply(req, netip.Addr{}), req, tcp)
		}
	}
	eventually(t, "an answer after all that", func() bool {
		q := new(wire.Msg)
		q.SetQuestion("nginx-svc.default.svc.cluster.local.", wire.TypeA)
		m, err := wire.Exchange(q, addr.String())
		return err == nil && len(m.Answer) == 1
	})
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
		if m := exchange(t, to, query{name: "www.example.com", qtype: wire.TypeA}); m.Rcode != wire.RcodeRefused {
			t.Errorf("got %v", m)
		}
	}
}

// TestWildcard6 is the same for IPv6, with a question for upstream too, whose reply is
// sent by itself.
func TestWildcard6(t *testing.T) {
	if pc, err := net.ListenPacket("udp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 loopback: ", err)
	} else {
		pc.Close()
	}
	port := freePort(t, "127.0.53.2").Port()
	_, _ = serve(t, buildZone(t, objects), Config{Addresses: []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), port)}})
	to := netip.AddrPortFrom(netip.IPv6Loopback(), port)
	if m := exchange(t, to, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeAAAA}); len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
	if m := exchange(t, to, query{name: "www.example.com", qtype: wire.TypeA}); m.Rcode != wire.RcodeRefused {
		t.Errorf("got %v", m)
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
