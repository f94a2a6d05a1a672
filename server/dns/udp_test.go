package dnsserver

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// TestNothingAllocatedPerQuery sends bursts to one socket and counts what the process
// allocates for them.
func TestNothingAllocatedPerQuery(t *testing.T) {
	s := New(Config{Addresses: []netip.AddrPort{freePort(t, "127.0.53.6")}, Sockets: 1})
	s.SetZone(buildZone(t, objects))
	l, err := s.listen(s.cfg.Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(l)
	c, err := net.Dial("udp", s.cfg.Addresses[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := new(wire.Msg)
	q.SetQuestion("nginx-svc.default.svc.cluster.local.", wire.TypeA)
	q.SetEdns0(1232, false)
	raw, _ := q.Pack()
	buf := make([]byte, 1500)
	const burst = 50
	n := testing.AllocsPerRun(50, func() {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		for range burst {
			if _, err := c.Write(raw); err != nil {
				t.Fatal(err)
			}
		}
		for range burst {
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n > burst/5 { // timers and other tests' last goroutines, now and then
		t.Errorf("%v allocations for %d queries", n, burst)
	}
}

// TestHandover closes a socket with queries in it: they are answered all the same.
func TestHandover(t *testing.T) {
	s, addr := serve(t, buildZone(t, objects), Config{Sockets: 1})
	c, err := net.Dial("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := new(wire.Msg)
	q.SetQuestion("nginx-svc.default.svc.cluster.local.", wire.TypeA)
	raw, _ := q.Pack()
	for range 200 {
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetAddresses(nil); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1500)
	for i := range 200 {
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := c.Read(buf); err != nil {
			t.Fatalf("after %d replies: %v", i, err)
		}
	}
}

// TestCounted: what packed answers count is what a scrape shows.
func TestCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	_, addr := serve(t, buildZone(t, objects), Config{Registerer: reg, Sockets: 2})
	for i := range 40 {
		name := "nginx-svc.default.svc.cluster.local"
		if i%4 == 0 {
			name = "gone." + name
		}
		exchange(t, addr, query{name: name, qtype: wire.TypeA, net: []string{"udp", "tcp"}[i%2]})
	}
	eventually(t, "40 queries counted", func() bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				key := f.GetName()
				for _, l := range m.Label {
					if n := l.GetName(); n == "proto" || n == "type" || n == "rcode" {
						key += " " + l.GetValue()
					}
				}
				got[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return got["coredns_dns_requests_total udp A"] == 20 && got["coredns_dns_requests_total tcp A"] == 20 &&
			got["coredns_dns_responses_total NXDOMAIN"] == 10 && got["coredns_dns_responses_total NOERROR"] == 30 &&
			got["coredns_dns_request_duration_seconds"] == 40 && got["coredns_dns_response_size_bytes udp"] == 20
	})
}

// TestPipelined sends many queries at once, one of them to an upstream that is silent:
// the others must not wait for it.
func TestPipelined(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cfg := Config{Forward: forwardTo(netip.MustParseAddrPort(silent.LocalAddr().String())), UpstreamTimeout: 4 * time.Second}
	_, addr := serve(t, buildZone(t, objects), cfg)
	c, err := wire.DialTimeout("tcp", addr.String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	for i := range 20 {
		q := new(wire.Msg)
		q.SetQuestion("nginx-svc.default.svc.cluster.local.", wire.TypeA)
		if q.Id = uint16(i); i == 3 {
			q.SetQuestion("www.example.com.", wire.TypeA)
			q.Id = 3
		}
		if err := c.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 19 {
		if m, err := c.ReadMsg(); err != nil || m.Id == 3 {
			t.Fatalf("reply %d: %v, %v", i, m, err)
		}
	}
	if _, err := c.ReadMsg(); err == nil || !os.IsTimeout(err) {
		t.Errorf("the silent upstream's question: %v", err)
	}
}
