package iptables

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/random"
)

// randomSettings are of this mode; localhost NodePorts are on but for every fifth.
func randomSettings(r *rand.Rand) proxy.Config {
	cfg := random.Settings(r)
	cfg.Mode, cfg.LocalhostNodePorts = proxy.IPTables, r.IntN(5) > 0
	cfg.RejectUnknownPorts, cfg.ServiceCIDRs = false, nil
	// A load balancer's and an external address may be bound on the node.
	for _, a := range []string{"192.0.2.1", "198.51.100.2"} {
		if r.IntN(3) == 0 {
			cfg.LocalAddrs = append(cfg.LocalAddrs, netip.MustParseAddr(a))
		}
	}
	return cfg
}

func planFor(prev *proxy.Plan, o model.Objects, cfg proxy.Config) *proxy.Plan {
	snap, _ := model.Build(nil, o)
	plan, _ := proxy.New(prev, snap, cfg)
	return plan
}

// TestTraceIsAnswer: the rules say of every packet what the plan says.
func TestTraceIsAnswer(t *testing.T) {
	fates := map[packet.Action]int{}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		cfg := randomSettings(r)
		plan := planFor(nil, random.Cluster(r), cfg)
		prog := Compile(nil, plan, Options{Liberal: r.IntN(3) == 0, Counters: r.IntN(3) == 0})
		for _, pkt := range random.Packets(r, plan, 60) {
			pkt = possible(pkt)
			want, got := plan.Answer(pkt), prog.Trace(pkt, localOf(cfg))
			fates[want.Action]++
			if !got.Equal(want) {
				t.Fatalf("seed %d: %s (in %q, local %v)\nrules: %s\nplan:  %s\n%v\n%v\n%+v\n%s",
					seed, pkt, pkt.In, pkt.Local, got, want, got.Steps, want.Steps, cfg, plan.Text())
			}
		}
	}
	for _, a := range []packet.Action{packet.Forward, packet.Reject, packet.Drop, packet.Pass} {
		if fates[a] < 100 {
			t.Errorf("only %d packets with fate %s: the generator does not reach it", fates[a], a)
		}
	}
}

// possible makes a packet one that gets as far as our rules and means there what it
// says: from loopback only the node itself sends.
func possible(pkt packet.Packet) packet.Packet {
	if pkt.Dst.Addr().IsLoopback() && (pkt.Local || pkt.Src.IsLoopback()) {
		pkt.Src, pkt.Local = pkt.Dst.Addr(), true
	}
	if pkt.Local {
		pkt.In = ""
	}
	return pkt
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
