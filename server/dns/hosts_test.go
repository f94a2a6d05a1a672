package dnsserver

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// TestHosts: names of a hosts file are answered, others go upstream, and a changed file is
// read again.
func TestHosts(t *testing.T) {
	var asked atomic.Int64
	path := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("192.0.2.1 box.example.net\n")
	cfg := forwardTo(upstreamServer(t, internet(t, &asked)))
	cfg.Hosts = []dns.HostsConfig{{File: path, TTL: 60, Fallthrough: []string{"."}}}
	s, addr := serve(t, buildZone(t, objects), Config{Forward: cfg})
	m := exchange(t, addr, query{name: "Box.example.net.", qtype: wire.TypeA})
	if m.Rcode != 0 || len(m.Answer) != 1 || m.Answer[0].Header().Name != "Box.example.net." || m.Answer[0].(*wire.A).A.String() != "192.0.2.1" || asked.Load() != 0 {
		t.Errorf("got %v", m)
	}
	if m := exchange(t, addr, query{name: "www.example.com.", qtype: wire.TypeA}); len(m.Answer) != 2 {
		t.Errorf("got %v", m)
	}
	write("192.0.2.2 box.example.net\n")
	s.SetForward(cfg)
	if m := exchange(t, addr, query{name: "box.example.net.", qtype: wire.TypeA}); m.Answer[0].(*wire.A).A.String() != "192.0.2.2" {
		t.Errorf("got %v", m)
	}
}
