package loop

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ipvs"
	"fairway/test/random"
)

func ipvsPlan(prev *proxy.Plan, o model.Objects, cfg proxy.Config) *proxy.Plan {
	snap, _ := model.Build(nil, o)
	plan, _ := proxy.New(prev, snap, cfg.WithMode(proxy.IPVS))
	return plan
}

// TestIPVSFailures: whatever write fails on the way, the end is what it would have been,
// less what still drains; a restart in between changes nothing.
func TestIPVSFailures(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		fake := kernel.NewFakeIPVS()
		b := NewIPVS(fake, [2]bool{true, true})
		cfg, objects := random.Settings(r), random.Cluster(r)
		fake.Fail = func(string) error {
			if r.IntN(10) == 0 {
				return kernel.ErrFake
			}
			return nil
		}
		fake.Refuse = func(ipvs.Op) error { return fake.Fail("op") }
		var plan *proxy.Plan
		for range 10 {
			objects = random.Change(r, objects)
			plan = ipvsPlan(plan, objects, cfg)
			_, _ = b.Apply(ctx, plan)
			if r.IntN(5) == 0 {
				b = NewIPVS(fake, [2]bool{true, true})
			}
		}
		fake.Fail, fake.Refuse = nil, nil
		if _, err := b.Audit(ctx); err != nil {
			t.Fatal(err)
		}
		if problems, err := b.Apply(ctx, plan); err != nil || len(problems) > 0 {
			t.Fatalf("seed %d: %v %v", seed, err, problems)
		}
		if err := b.Drain(); err != nil { // nothing has connections here
			t.Fatal(err)
		}
		want := ipvs.Compile(nil, plan)
		for i, v6 := range []bool{false, true} {
			if !reflect.DeepEqual(fake.States[i].Services, want.State(v6).Services) {
				t.Fatalf("seed %d: services differ:\n%v\n%v", seed, fake.States[i].Services, want.State(v6).Services)
			}
			if lines := ipvs.Drift(fake.States[i], want, ipvs.Draining{}); len(lines) > 0 {
				t.Fatalf("seed %d: differs:\n%s", seed, strings.Join(lines, "\n"))
			}
		}
		if err := b.Cleanup(ctx); err != nil || !fake.States[0].Empty() || !fake.States[1].Empty() {
			t.Fatalf("seed %d: after cleanup %v: %v", seed, err, fake.States)
		}
	}
}

// TestIPVSRefused: what the kernel refuses of one Service is that Service's Problem; the
// rest works, the kernel is not listed again for it, and it is tried anew when it
// changes.
func TestIPVSRefused(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, 1))
	cfg := random.Settings(r)
	fake := kernel.NewFakeIPVS()
	b := NewIPVS(fake, [2]bool{true, true})
	objects := random.Cluster(r)
	plan := ipvsPlan(nil, objects, cfg)
	bad := plan.Ports[0]
	fake.Refuse = func(o ipvs.Op) error {
		if o.Key.Addr.Addr() == bad.ClusterIP && o.Verb == ipvs.AddService {
			return kernel.ErrFake
		}
		return nil
	}
	problems, err := b.Apply(ctx, plan)
	if err != nil || len(problems) == 0 || !strings.Contains(problems[0].Message, kernel.ErrFake.Error()) || problems[0].Object != bad.Ref() {
		t.Fatalf("%v %v", problems, err)
	}
	for _, sp := range plan.Ports {
		key := ipvs.ServiceKey{Proto: sp.Proto, Addr: netip.AddrPortFrom(sp.ClusterIP, sp.Port), V6: sp.IPv6}
		i := 0
		if sp.IPv6 {
			i = 1
		}
		if _, there := fake.States[i].Services[key]; sp.ClusterIP.IsValid() && there == (sp.ClusterIP == bad.ClusterIP) {
			t.Errorf("%s: service there: %v", sp.Key, there)
		}
	}
	lists, ops := fake.Lists, fake.Ops
	if again, err := b.Apply(ctx, plan); err != nil || len(again) != len(problems) || fake.Lists != lists || fake.Ops != ops {
		t.Errorf("applied again: %v %v, %d listings and %d operations more", again, err, fake.Lists-lists, fake.Ops-ops)
	}
	fake.Refuse = nil
	if _, err := b.Audit(ctx); err != nil {
		t.Fatal(err)
	}
	if problems, err := b.Apply(ctx, plan); err != nil || len(problems) > 0 {
		t.Errorf("once the kernel takes it: %v %v", problems, err)
	}
	counts, err := b.Counters(ctx)
	if err != nil || len(counts) != len(plan.Ports) {
		t.Errorf("%d ServicePorts are counted of %d (%v)", len(counts), len(plan.Ports), err)
	}
}
