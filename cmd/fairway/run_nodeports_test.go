package main

import (
	"net/netip"
	"strings"
	"testing"

	"fairway/packet"
	"fairway/proxy"
)

func TestNodePortsAnswer(t *testing.T) {
	a := netip.MustParseAddr("10.77.0.1")
	c := proxy.Config{NodeIPs: []netip.Addr{a}, LocalAddrs: []netip.Addr{a}}
	for want, n := range map[string]proxy.NodePortAddresses{
		"on 10.77.0.1 (": {Primary: true}, "on every address": {}, "on no address": {CIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
	} {
		c.NodePortAddresses = n
		if got := nodePortsAnswer(c); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTakenPorts(t *testing.T) {
	raw, err := readConfig("")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := raw.typed()
	if err != nil {
		t.Fatal(err)
	}
	for port, taken := range map[uint16]bool{10256: true, 10053: true, 80: true, 443: true, 10249: false, 30080: false, 0: false} {
		got := cfg.takenPorts(&proxy.Plan{Ports: []*proxy.ServicePort{{NodePort: port, Key: proxy.Key{Proto: packet.TCP}}}})
		if len(got) > 0 != taken {
			t.Errorf("%d: %v", port, got)
		}
	}
}
