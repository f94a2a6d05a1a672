package userspace

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/test/random"
)

func localOf(cfg proxy.Config) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return a.IsLoopback() || slices.Contains(cfg.LocalAddrs, a) || slices.Contains(cfg.NodeIPs, a)
	}
}

func randomSettings(r *rand.Rand) proxy.Config {
	cfg := random.Settings(r)
	cfg.LocalhostNodePorts = r.IntN(5) > 0
	return cfg.WithMode(proxy.Userspace)
}

func planFor(prev *proxy.Plan, o model.Objects, cfg proxy.Config) *proxy.Plan {
	snap, _ := model.Build(nil, o)
	plan, _ := proxy.New(prev, snap, cfg)
	return plan
}

// possible makes a packet to loopback one there can be: from the node itself.
func possible(pkt packet.Packet) packet.Packet {
	if pkt.Dst.Addr().IsLoopback() {
		pkt.Src, pkt.Local = pkt.Dst.Addr(), true
	}
	if pkt.Local {
		pkt.In = ""
	}
	return pkt
}

// TestTraceIsAnswer: rules and listeners together do with every packet what the plan
// says.
func TestTraceIsAnswer(t *testing.T) {
	fates := map[packet.Action]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		cfg := randomSettings(r)
		plan := planFor(nil, random.Cluster(r), cfg)
		prog := Compile(nil, plan, true, Carry{})
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

// TestWithoutRules: a process that may write no rules does with packets to the machine's
// own addresses what the plan says, but that it refuses where the plan says to drop; the
// rest it never sees.
func TestWithoutRules(t *testing.T) {
	forwarded := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		cfg := randomSettings(r)
		cfg.Detector.Interface = "" // a socket does not tell by which interface a client came
		if cfg.Detector.Mode == proxy.DetectBridgeInterface || cfg.Detector.Mode == proxy.DetectInterfaceNamePrefix {
			cfg.Detector = proxy.Detector{}
		}
		cfg.LocalAddrs = append(cfg.LocalAddrs, cfg.NodeIPs...)
		for _, a := range []string{"192.0.2.1", "198.51.100.2", "10.96.0.3", "2001:db8:51::2"} {
			if r.IntN(2) == 0 {
				cfg.LocalAddrs = append(cfg.LocalAddrs, netip.MustParseAddr(a))
			}
		}
		plan := planFor(nil, random.Cluster(r), cfg)
		prog := Compile(nil, plan, false, Carry{})
		for _, pkt := range random.Packets(r, plan, 60) {
			pkt = possible(pkt)
			want, got := plan.Answer(pkt), prog.Trace(pkt, localOf(cfg))
			if pkt.Proto == packet.SCTP {
				continue // no process carries it
			}
			if want.Action != packet.Forward || !localOf(cfg)(pkt.Dst.Addr()) {
				if got.Action == packet.Forward {
					t.Fatalf("seed %d: %s\nprocess: %s\nplan:    %s\n%s", seed, pkt, got, want, plan.Text())
				}
				continue
			}
			if forwarded++; !got.Equal(want) {
				t.Fatalf("seed %d: %s\nprocess: %s\nplan:    %s\n%v\n%s", seed, pkt, got, want, got.Steps, plan.Text())
			}
		}
	}
	if forwarded < 500 {
		t.Errorf("only %d packets forwarded", forwarded)
	}
}

// TestKept: what did not change is the same pointer; ports stay with their listeners
// whatever comes and goes.
func TestKept(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		cfg, objects := randomSettings(r), random.Cluster(r)
		plan := planFor(nil, objects, cfg)
		prog := Compile(nil, plan, true, Carry{})
		for range 5 {
			objects = random.Change(r, objects)
			next := planFor(plan, objects, cfg)
			carry := Carry{Ports: map[string]uint16{}}
			before := map[string]*Listener{}
			for _, l := range prog.Listeners {
				before[l.Name] = l
				if l.Inner {
					carry.Ports[l.Name] = l.Addr.Port()
				}
			}
			now := Compile(prog, next, true, carry)
			ports := map[front]string{}
			for _, l := range now.Listeners {
				f := front{l.Addr, l.Key.Proto}
				if other := ports[f]; other != "" {
					t.Fatalf("seed %d: %s and %s are both at %s", seed, other, l.Name, l.Addr)
				}
				ports[f] = l.Name
				if was := before[l.Name]; was != nil && was.Addr != l.Addr {
					t.Fatalf("seed %d: %s moved from %s to %s", seed, l.Name, was.Addr, l.Addr)
				}
			}
			same := Compile(now, next, true, carry)
			if lines, change := Diff(now, same); len(lines) > 0 || !change.Empty() || !slices.Equal(now.Listeners, same.Listeners) {
				t.Fatalf("seed %d: compiled again it differs: %v %v", seed, lines, change.Lines())
			}
			plan, prog = next, now
		}
	}
}

// TestRelayed: rules of another mode with listeners for loopback beside them do what the
// plan says.
func TestRelayed(t *testing.T) {
	relayed := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 10))
		cfg := random.Settings(r).WithMode(proxy.NFTables)
		cfg.LocalhostRelay = r.IntN(4) > 0
		plan := planFor(nil, random.Cluster(r), cfg)
		rules := Relayed{nftables.Compile(nil, plan), Localhost(nil, plan)}
		for _, pkt := range random.Packets(r, plan, 80) {
			pkt = possible(pkt)
			want, got := plan.Answer(pkt), rules.Trace(pkt, localOf(cfg))
			if !got.Equal(want) {
				t.Fatalf("seed %d: %s\nrules: %s\nplan:  %s\n%v\n%s", seed, pkt, got, want, got.Steps, plan.Text())
			}
			if pkt.Dst.Addr().IsLoopback() && want.Action == packet.Forward {
				relayed++
			}
		}
	}
	if relayed < 50 {
		t.Errorf("only %d packets relayed", relayed)
	}
}
