package dnsserver

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairway/dns"
	"fairway/kube"
	"fairway/model"

	wire "github.com/miekg/dns"
)

func transferable(t *testing.T, yaml, corefile string) *dns.Zone {
	t.Helper()
	o, _ := kube.Decode("objects.yaml", []byte(yaml))
	cfg, _, problems := dns.ParseCorefile(corefile)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	snap, _ := model.Build(nil, o)
	z, _ := dns.Build(nil, snap, cfg)
	return z
}

const transferFile = `.:53 {
    kubernetes cluster.local in-addr.arpa
    transfer {
        to 127.0.0.1 10.0.0.0/8 [fd00::1]:53
    }
}`

func axfr(t *testing.T, addr netip.AddrPort, q *wire.Msg) ([]string, error) {
	t.Helper()
	ch, err := new(wire.Transfer).In(q, addr.String())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for e := range ch {
		if e.Error != nil {
			return nil, e.Error
		}
		for _, rr := range e.RR {
			got = append(got, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return got, nil
}

// TestTransfer: a copy of the zone holds what the zone prints, between two SOA records.
func TestTransfer(t *testing.T) {
	z := transferable(t, objects+"\n---\n"+big(1000), transferFile)
	_, addr := serve(t, z, Config{})
	for _, zone := range []string{"cluster.local.", "in-addr.arpa."} {
		got, err := axfr(t, addr, new(wire.Msg).SetAxfr(zone))
		if err != nil {
			t.Fatal(zone, err)
		}
		if len(got) < 500 || got[0] != got[len(got)-1] || !strings.Contains(got[0], " SOA ") {
			t.Fatalf("%s: %d records, from %q to %q", zone, len(got), got[0], got[len(got)-1])
		}
		var want []string
		for line := range strings.Lines(z.Text()) {
			if owner, rest, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasSuffix(owner, zone) && !strings.Contains(rest, " SOA ") {
				want = append(want, strings.TrimSpace(line))
			}
		}
		have := got[1 : len(got)-1]
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s: %d records, want %d", zone, len(have), len(want))
		}
	}
}

// TestIncremental: who has the serial already gets one SOA, others the whole zone.
func TestIncremental(t *testing.T) {
	z := transferable(t, objects, transferFile)
	_, addr := serve(t, z, Config{})
	q := new(wire.Msg).SetIxfr("cluster.local.", z.Serial(), "ns.dns.cluster.local.", "hostmaster.cluster.local.")
	if m := exchange(t, addr, query{name: "cluster.local.", qtype: wire.TypeIXFR, net: "tcp", change: func(m *wire.Msg) { m.Ns = q.Ns }}); len(m.Answer) != 1 || m.Answer[0].Header().Rrtype != wire.TypeSOA {
		t.Errorf("current: %v", m)
	}
	old := new(wire.Msg).SetIxfr("cluster.local.", z.Serial()-1, "ns.dns.cluster.local.", "hostmaster.cluster.local.")
	if m := exchange(t, addr, query{name: "cluster.local.", qtype: wire.TypeIXFR, net: "tcp", change: func(m *wire.Msg) { m.Ns = old.Ns }}); len(m.Answer) < 15 {
		t.Errorf("outdated: %v", m)
	}
}

// TestTransferRefused: others get nothing, nor does anybody below the zone or over UDP.
func TestTransferRefused(t *testing.T) {
	for _, tc := range []struct{ to, zone, net string }{
		{"10.0.0.0/8", "cluster.local.", "tcp"}, {"*", "svc.cluster.local.", "tcp"}, {"*", "example.com.", "tcp"}, {"*", "cluster.local.", "udp"},
	} {
		_, addr := serve(t, transferable(t, objects, strings.Replace(transferFile, "127.0.0.1 10.0.0.0/8 [fd00::1]:53", tc.to, 1)), Config{})
		if m := exchange(t, addr, query{name: tc.zone, qtype: wire.TypeAXFR, net: tc.net}); m.Rcode != wire.RcodeRefused || len(m.Answer) > 0 {
			t.Errorf("%+v: %v", tc, m)
		}
	}
}
