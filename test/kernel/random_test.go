package kernel_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/test/netlab"
	"fairway/test/random"

	"fairway/kernel"
	"fairway/loop"
)

// runRandom sends random packets through random clusters; each seed is a lab.
func runRandom(t *testing.T, m mode, seeds uint64) {
	requireKernel(t)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 11))
		cfg := random.Settings(r)
		for cfg.Detector.Interface != "" { // packets do not say which cable they take
			cfg = random.Settings(r)
		}
		if m.settings != nil {
			m.settings(&cfg)
		}
		snap, _ := model.Build(nil, random.Cluster(r))
		plan, _ := proxy.New(nil, snap, cfg)
		var packets []packet.Packet
		for _, p := range random.Packets(r, plan, 60) {
			if p.In = ""; p.Src != p.Dst.Addr() && !p.Dst.Addr().IsLoopback() && p.Proto != packet.SCTP {
				packets = append(packets, p)
			}
		}
		lab := newLab(t, plan, packets)
		if m.prepare != nil {
			m.prepare(t, lab, packets)
		}
		apply(t, m.open(t, lab.Node), plan)
		sendAll(t, lab, plan, packets)
		lab.Close()
		if t.Failed() {
			t.Fatalf("seed %d\n%s", seed, plan.Text())
		}
	}
}

func TestNFTablesRandomPackets(t *testing.T) { runRandom(t, nftablesMode(), 6) }

// TestNFTablesRandomChanges: the real kernel takes any Change, and lists what was meant.
func TestNFTablesRandomChanges(t *testing.T) {
	requireKernel(t)
	for seed := range uint64(10) {
		lab, err := netlab.New(netlab.Layout{})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 12))
		hand := kernel.NewNFTables(lab.Node.NS())
		b := loop.NewNFTables(hand)
		cfg, objects := random.Settings(r), random.Cluster(r)
		var snap *model.Snapshot
		var plan *proxy.Plan
		for step := range 12 {
			if r.IntN(6) == 0 {
				cfg = random.Settings(r)
			}
			objects = random.Change(r, objects)
			snap, _ = model.Build(snap, objects)
			plan, _ = proxy.New(plan, snap, cfg)
			if problems, err := b.Apply(context.Background(), plan); err != nil || len(problems) > 0 {
				t.Fatalf("seed %d step %d: %v %v", seed, step, err, problems)
			}
			have, err := hand.List()
			if err != nil {
				t.Fatal(err)
			}
			if d := nftables.Diff(have, nftables.Compile(nil, plan)); !d.Empty() {
				t.Fatalf("seed %d step %d: the kernel differs:\n%s", seed, step, d.Text())
			}
		}
		lab.Close()
	}
}
