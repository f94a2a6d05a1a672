package dnsserver

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// upstreamServer is a real DNS server on loopback with a handler of the test's.
func upstreamServer(t *testing.T, h wire.HandlerFunc) netip.AddrPort {
	t.Helper()
	addr := freePort(t, "127.0.53.20")
	pc, err := net.ListenPacket("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*wire.Server{{PacketConn: pc, Handler: h, UDPSize: 4096}, {Listener: ln, Handler: h}} {
		up := make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { _ = s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return addr
}

// rr parses records for an upstream's reply.
func rr(t *testing.T, lines ...string) []wire.RR {
	t.Helper()
	var out []wire.RR
	for _, l := range lines {
		r, err := wire.NewRR(l)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// internet answers www.example.com, denies *.gone.example.com and counts.
func internet(t *testing.T, asked *atomic.Int64) wire.HandlerFunc {
	return func(w wire.ResponseWriter, r *wire.Msg) {
		if r.Question[0].Qtype == wire.TypeHINFO {
			_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeNameError))
			return
		}
		asked.Add(1)
		m := new(wire.Msg)
		m.SetReply(r)
		q := r.Question[0]
		switch {
		case wire.CanonicalName(q.Name) == "www.example.com." && q.Qtype == wire.TypeA:
			m.Answer = rr(t, "www.example.com. 300 IN CNAME web.example.com.", "web.example.com. 300 IN A 192.0.2.80")
		case wire.CanonicalName(q.Name) == "www.example.com.":
			m.Ns = rr(t, "example.com. 300 IN SOA ns.example.com. h.example.com. 1 2 3 4 20")
		case wire.IsSubDomain("big.example.com.", q.Name):
			for i := range 60 {
				m.Answer = append(m.Answer, rr(t, fmt.Sprintf("big.example.com. 60 IN AAAA 2001:db8::%x", i))...)
			}
			if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
				m.Truncate(1232)
			}
		default:
			m.Rcode = wire.RcodeNameError
			m.Ns = rr(t, "example.com. 300 IN SOA ns.example.com. h.example.com. 1 2 3 4 20")
		}
		_ = w.WriteMsg(m)
	}
}

func forwardTo(addrs ...netip.AddrPort) dns.ForwardConfig {
	f := dns.DefaultForwardConfig()
	f.Lameduck = 0
	f.Routes[0].Upstreams = nil
	f.Routes[0].Policy = dns.Sequential
	for _, a := range addrs {
		f.Routes[0].Upstreams = append(f.Routes[0].Upstreams, a.String())
	}
	return f
}

func TestForward(t *testing.T) {
	var asked atomic.Int64
	up := upstreamServer(t, internet(t, &asked))
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up)})
	m := exchange(t, addr, query{name: "WWW.example.com.", qtype: wire.TypeA})
	if m.Rcode != 0 || len(m.Answer) != 2 || !m.RecursionAvailable || m.Authoritative || m.IsEdns0() != nil || m.Answer[0].Header().Name != "WWW.example.com." {
		t.Errorf("got %v", m)
	}
	if ttl := m.Answer[0].Header().Ttl; ttl != 30 {
		t.Errorf("TTL %d is not capped", ttl)
	}
	exchange(t, addr, query{name: "www.EXAMPLE.com.", qtype: wire.TypeA, bufsz: 4096})
	if n := asked.Load(); n != 1 {
		t.Errorf("asked upstream %d times for one name", n)
	}
	m = exchange(t, addr, query{name: "x.gone.example.com.", qtype: wire.TypeA})
	if m.Rcode != wire.RcodeNameError || len(m.Ns) != 1 || m.Ns[0].Header().Ttl > 20 {
		t.Errorf("got %v", m)
	}
	exchange(t, addr, query{name: "x.gone.example.com.", qtype: wire.TypeA})
	if n := asked.Load(); n != 2 {
		t.Errorf("a denial is not kept: asked %d times", n)
	}
	// A PTR that is not ours falls through.
	m = exchange(t, addr, query{name: "1.2.0.192.in-addr.arpa.", qtype: wire.TypePTR})
	if m.Rcode != wire.RcodeNameError || asked.Load() != 3 {
		t.Errorf("got %v", m)
	}
}

func TestExternalName(t *testing.T) {
	var asked atomic.Int64
	up := upstreamServer(t, internet(t, &asked))
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up)})
	m := exchange(t, addr, query{name: "external-svc.default.svc.cluster.local", qtype: wire.TypeA})
	want := []string{"external-svc.default.svc.cluster.local. 30 IN CNAME www.example.com.", "web.example.com. 30 IN A 192.0.2.80", "www.example.com. 30 IN CNAME web.example.com."}
	if got := sectionLines(m.Answer); !slices.Equal(got, want) || !m.Authoritative {
		t.Errorf("got %v", m)
	}
	if m.Answer[0].Header().Rrtype != wire.TypeCNAME || m.Answer[2].Header().Rrtype != wire.TypeA {
		t.Errorf("out of order: %v", m.Answer)
	}
}

// TestExternalNameAlone has no upstream that answers: the CNAME still comes, in time.
func TestExternalNameAlone(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.53.21:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, f := range []dns.ForwardConfig{{}, forwardTo(freePort(t, "127.0.53.22")), forwardTo(netip.MustParseAddrPort(silent.LocalAddr().String()))} {
		_, addr := serve(t, buildZone(t, objects), Config{Forward: f})
		start := time.Now()
		m := exchange(t, addr, query{name: "external-svc.default.svc.cluster.local", qtype: wire.TypeA})
		if m.Rcode != 0 || len(m.Answer) != 1 || time.Since(start) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), m)
		}
	}
}

func TestUpstreamTruncates(t *testing.T) {
	var asked atomic.Int64
	up := upstreamServer(t, internet(t, &asked))
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up)})
	m := exchange(t, addr, query{name: "big.example.com.", qtype: wire.TypeAAAA, net: "tcp"})
	if len(m.Answer) != 60 || m.Truncated {
		t.Errorf("%d answers, TC %v", len(m.Answer), m.Truncated)
	}
	m = exchange(t, addr, query{name: "big.example.com.", qtype: wire.TypeAAAA, bufsz: 1232})
	if len(m.Answer) >= 60 || !m.Truncated {
		t.Errorf("%d answers, TC %v", len(m.Answer), m.Truncated)
	}
}

func TestFailover(t *testing.T) {
	var asked atomic.Int64
	good := upstreamServer(t, internet(t, &asked))
	bad := freePort(t, "127.0.53.23") // nobody listens
	s, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(bad, good)})
	for i := range 4 {
		m := exchange(t, addr, query{name: fmt.Sprintf("n%d.gone.example.com.", i), qtype: wire.TypeA})
		if m.Rcode != wire.RcodeNameError {
			t.Fatalf("got %v", m)
		}
	}
	s.forward.mu.Lock()
	u := s.forward.upstreams[bad]
	s.forward.mu.Unlock()
	if !u.down.Load() {
		t.Error("an upstream that never answers is not down")
	}
	// It comes up: probes find it.
	pc, err := net.ListenPacket("udp", bad.String())
	if err != nil {
		t.Fatal(err)
	}
	late := &wire.Server{PacketConn: pc, Handler: internet(t, &asked)}
	go func() { _ = late.ActivateAndServe() }()
	defer func() { _ = late.Shutdown() }()
	eventually(t, "the upstream stays down", func() bool { return !u.down.Load() })
}

func TestNoUpstream(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo()})
	if m := exchange(t, addr, query{name: "www.example.com.", qtype: wire.TypeA}); m.Rcode != wire.RcodeServerFailure {
		t.Errorf("got %v", m)
	}
}

func TestMaxConcurrent(t *testing.T) {
	hold := make(chan struct{})
	up := upstreamServer(t, func(w wire.ResponseWriter, r *wire.Msg) {
		if r.Question[0].Qtype == wire.TypeA {
			<-hold
		}
		_ = w.WriteMsg(new(wire.Msg).SetReply(r))
	})
	f := forwardTo(up)
	f.Routes[0].MaxConcurrent = 1
	reg := prometheus.NewRegistry()
	s, addr := serve(t, buildZone(t, objects), Config{Forward: f, Registerer: reg})
	first := make(chan *wire.Msg)
	go func() { first <- exchange(t, addr, query{name: "a.example.com.", qtype: wire.TypeA}) }()
	route := (*s.forward.routes.Load())[0]
	eventually(t, "not asked", func() bool { return route.inFlight.Load() == 1 })
	if m := exchange(t, addr, query{name: "b.example.com.", qtype: wire.TypeA}); m.Rcode != wire.RcodeRefused {
		t.Errorf("got %v", m)
	}
	close(hold)
	if m := <-first; m.Rcode != 0 {
		t.Errorf("got %v", m)
	}
	if n := total(t, reg, "coredns_forward_max_concurrent_rejects_total"); n != 1 {
		t.Errorf("counted %v", n)
	}
}

// TestLoop has an upstream that sends everything back: it is set aside, others serve.
func TestLoop(t *testing.T) {
	var self atomic.Pointer[string]
	back := upstreamServer(t, func(w wire.ResponseWriter, r *wire.Msg) {
		c := wire.Client{Timeout: time.Second}
		if m, _, err := c.Exchange(r.Copy(), *self.Load()); err == nil {
			_ = w.WriteMsg(m)
		}
	})
	addr := freePort(t, "127.0.53.24")
	to := addr.String()
	self.Store(&to)
	var asked atomic.Int64
	good := upstreamServer(t, internet(t, &asked))
	reg := prometheus.NewRegistry()
	s, _ := serve(t, buildZone(t, objects), Config{Addresses: []netip.AddrPort{addr}, Forward: forwardTo(back, addr, good), Registerer: reg})
	eventually(t, "no loop found", func() bool { return total(t, reg, "fairway_dns_upstream_looping") == 2 })
	if m := exchange(t, addr, query{name: "www.example.com.", qtype: wire.TypeA}); len(m.Answer) != 2 {
		t.Errorf("got %v", m)
	}
	s.SetForward(forwardTo(back))
	if m := exchange(t, addr, query{name: "other.example.com.", qtype: wire.TypeA}); m.Rcode != wire.RcodeServerFailure {
		t.Errorf("got %v", m)
	}
}

// TestOldUpstream does not understand EDNS.
func TestOldUpstream(t *testing.T) {
	up := upstreamServer(t, func(w wire.ResponseWriter, r *wire.Msg) {
		m := new(wire.Msg)
		if r.IsEdns0() != nil {
			_ = w.WriteMsg(m.SetRcode(r, wire.RcodeFormatError))
			return
		}
		m.SetReply(r)
		m.Answer = rr(t, "www.example.com. 300 IN A 192.0.2.80")
		_ = w.WriteMsg(m)
	})
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up)})
	if m := exchange(t, addr, query{name: "www.example.com.", qtype: wire.TypeA}); len(m.Answer) != 1 {
		t.Errorf("got %v", m)
	}
}

func TestRoutesAndResolvConf(t *testing.T) {
	var asked, stub atomic.Int64
	up, inner := upstreamServer(t, internet(t, &asked)), upstreamServer(t, internet(t, &stub))
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.53.99\nsearch example.com\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := forwardTo(up)
	f.Routes = append(f.Routes, dns.Route{Zone: "corp.test.", Upstreams: []string{inner.String()}, Except: []string{"secret.corp.test."}},
		dns.Route{Zone: "conf.test.", Upstreams: []string{file}})
	s, addr := serve(t, buildZone(t, objects), Config{Forward: f})
	exchange(t, addr, query{name: "a.corp.test.", qtype: wire.TypeA})
	if stub.Load() != 1 || asked.Load() != 0 {
		t.Errorf("stub domain: %d, default %d", stub.Load(), asked.Load())
	}
	if m := exchange(t, addr, query{name: "x.secret.corp.test.", qtype: wire.TypeA}); m.Rcode != wire.RcodeRefused {
		t.Errorf("got %v", m)
	}
	if r := s.forward.routeFor("x.conf.test."); len(r.upstreams) != 1 || r.upstreams[0].addr.String() != "127.0.53.99:53" {
		t.Errorf("from resolv.conf: %+v", r.upstreams)
	}
}

// TestSharedQuestion asks one name many times at once: upstream is asked once.
func TestSharedQuestion(t *testing.T) {
	var asked atomic.Int64
	up := upstreamServer(t, func(w wire.ResponseWriter, r *wire.Msg) {
		if r.Question[0].Qtype == wire.TypeA {
			asked.Add(1)
			time.Sleep(200 * time.Millisecond)
		}
		_ = w.WriteMsg(new(wire.Msg).SetReply(r)) // NODATA without SOA is not kept
	})
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up)})
	done := make(chan *wire.Msg)
	for range 20 {
		go func() { done <- exchange(t, addr, query{name: "same.example.com.", qtype: wire.TypeA}) }()
	}
	for range 20 {
		if m := <-done; m.Rcode != 0 {
			t.Errorf("got %v", m)
		}
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestCache(t *testing.T) {
	c := newCache(dns.CacheConfig{Success: dns.CacheLimits{Capacity: 2, MaxTTL: time.Minute, MinTTL: 5 * time.Second}, ServFail: 5 * time.Second}, newMetrics(nil, nil, ""))
	now := time.Unix(1000, 0)
	got := func(k ask, at time.Time) *wire.Msg { return c.get(k, at).msg }
	msg := func(ttl uint32) *wire.Msg {
		m := new(wire.Msg)
		m.SetQuestion("a.test.", wire.TypeA)
		m.Answer = []wire.RR{&wire.A{Hdr: wire.RR_Header{Name: "a.test.", Rrtype: wire.TypeA, Class: 1, Ttl: ttl}, A: net.IPv4(192, 0, 2, 1)}}
		return m
	}
	k := ask{name: "a.test.", qtype: wire.TypeA}
	c.put(k, msg(40), now)
	if m := got(k, now.Add(10*time.Second)); m == nil || m.Answer[0].Header().Ttl != 30 {
		t.Errorf("after 10 s of 40: %v", m)
	}
	if m := got(k, now.Add(40*time.Second)); m != nil {
		t.Errorf("after 40 s of 40: %v", m)
	}
	c.put(k, msg(0), now.Add(time.Hour))
	if m := got(k, now.Add(time.Hour)); m != nil {
		t.Errorf("TTL 0 is kept: %v", m)
	}
	for i := range 10 {
		c.put(ask{name: fmt.Sprint(i), qtype: wire.TypeA}, msg(40), now)
	}
	if len(c.success) != 2 {
		t.Errorf("%d entries, capacity 2", len(c.success))
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	var asked atomic.Int64
	up := upstreamServer(t, internet(t, &asked))
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up), Registerer: reg})
	exchange(t, addr, query{name: "nginx-svc.default.svc.cluster.local", qtype: wire.TypeA})
	exchange(t, addr, query{name: "gone.default.svc.cluster.local", qtype: wire.TypeAAAA, net: "tcp"})
	for range 2 {
		exchange(t, addr, query{name: "www.example.com.", qtype: wire.TypeA})
	}
	for name, want := range map[string]float64{
		"coredns_dns_requests_total": 4, "coredns_dns_responses_total": 4, "coredns_dns_request_duration_seconds": 4,
		"coredns_cache_hits_total": 1, "coredns_cache_misses_total": 1, "coredns_cache_entries": 1, "coredns_dns_do_requests_total": 0,
	} {
		eventually(t, name+" is wrong", func() bool { return total(t, reg, name) == want })
	}
	for _, name := range []string{"coredns_forward_requests_total", "coredns_forward_responses_total", "coredns_forward_request_duration_seconds"} {
		if total(t, reg, name) < 1 {
			t.Errorf("%s is not counted", name)
		}
	}
}

// total sums a metric over its labels; of a histogram it is the count.
func total(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
