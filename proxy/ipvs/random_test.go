package ipvs

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/random"
)

func randomSettings(r *rand.Rand) proxy.Config {
	cfg := random.Settings(r)
	all := proxy.IPVS.Traits().Schedulers
	cfg.Scheduler = all[r.IntN(len(all))]
	// A load balancer's and an external address may be bound on the node.
	for _, a := range []string{"192.0.2.1", "198.51.100.2"} {
		if r.IntN(3) == 0 {
			cfg.LocalAddrs = append(slices.Clone(cfg.LocalAddrs), netip.MustParseAddr(a))
		}
	}
	return cfg.WithMode(proxy.IPVS)
}

func planFor(prev *proxy.Plan, o model.Objects, cfg proxy.Config) *proxy.Plan {
	snap, _ := model.Build(nil, o)
	plan, _ := proxy.New(prev, snap, cfg)
	return plan
}

func localOf(cfg proxy.Config) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return a.IsLoopback() || slices.Contains(cfg.LocalAddrs, a) || slices.Contains(cfg.NodeIPs, a)
	}
}

// TestTraceIsAnswer: rules and services say of every packet what the plan says.
func TestTraceIsAnswer(t *testing.T) {
	fates := map[packet.Action]int{}
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 7))
		cfg := randomSettings(r)
		plan := planFor(nil, random.Cluster(r), cfg)
		prog := Compile(nil, plan)
		for _, pkt := range random.Packets(r, plan, 60) {
			pkt = possible(prog, pkt)
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

// possible makes a packet one that can be: from a VIP only the node itself sends.
func possible(p *Program, pkt packet.Packet) packet.Packet {
	if pkt.Src.Is6() == pkt.Dst.Addr().Is6() && slices.Contains(p.family(pkt.Src.Is6()).addrs, pkt.Src) {
		pkt.Local = true
	}
	if pkt.Local {
		pkt.In = ""
	}
	return pkt
}

// TestIncremental: small changes one after the other end where one big one does, for
// sets, services and addresses alike, and what has not changed is not touched.
func TestIncremental(t *testing.T) {
	touched := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		cfg, objects := randomSettings(r), random.Cluster(r)
		var plan *proxy.Plan
		var prog *Program
		kernel := [2]*State{NewState(false), NewState(true)}
		draining := [2]Draining{{}, {}}
		for step := range 12 {
			if r.IntN(6) == 0 {
				cfg = randomSettings(r)
			}
			objects = random.Change(r, objects)
			plan = planFor(plan, objects, cfg)
			next := Compile(prog, plan)
			for i, v6 := range []bool{false, true} {
				var c *Change
				if prog == nil || r.IntN(8) == 0 { // as after a restart
					draining[i] = Draining{}
					c = DiffState(kernel[i], next, draining[i])
				} else {
					c = Diff(prog, next, v6, draining[i])
				}
				apply(t, kernel[i], c)
				draining[i].Note(c, slices.Concat(c.Services, c.Removals))
				if again := Drift(kernel[i], next, draining[i]); len(again) > 0 {
					t.Fatalf("seed %d step %d: still differs:\n%v\nafter\n%v", seed, step, again, c)
				}
				if !c.Empty() {
					touched++
				}
				if c := Diff(next, next, v6, draining[i]); !c.Empty() {
					t.Fatalf("seed %d step %d: equal programs differ: %v", seed, step, c)
				}
			}
			prog = next
		}
		for _, st := range kernel {
			apply(t, st, Removal(st))
			if !st.Empty() {
				t.Fatalf("seed %d: left after the removal: %v", seed, st)
			}
		}
	}
	if touched < 250 {
		t.Errorf("only %d changes seen", touched)
	}
}
