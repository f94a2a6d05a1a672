package nftables_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/test/random"
)

// TestTraceIsAnswer: for any cluster, settings and packet, walking the program gives
// what the plan says.
func TestTraceIsAnswer(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		snap, _ := model.Build(nil, random.Cluster(r))
		plan, _ := proxy.New(nil, snap, random.Settings(r))
		p := nftables.Compile(nil, plan)
		for _, pkt := range random.Packets(r, plan, 40) {
			got, want := p.Trace(pkt, local(plan)), plan.Answer(pkt)
			if !got.Equal(want) {
				t.Fatalf("seed %d: %s in %q local %v\n got %s\nwant %s\n%v\n%s", seed, pkt, pkt.In, pkt.Local, got, want, got.Steps, plan.Text())
			}
		}
	}
}

// TestDiffReachesAnything: from any program the Change to any other is accepted by the
// kernel's rules, whole and Service by Service, and leads there.
func TestDiffReachesAnything(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 8))
		k := kernel.NewFakeNFTables(seed)
		k.Limit = []int{1, 30, 1000000}[r.IntN(3)]
		cfg, objects := random.Settings(r), random.Cluster(r)
		var snap *model.Snapshot
		var plan *proxy.Plan
		var have, want *nftables.Program
		for step := range 6 {
			if chance := r.IntN(6); chance == 0 {
				cfg = random.Settings(r)
			} else if chance == 1 {
				objects = random.Cluster(r)
			}
			objects = random.Change(r, objects)
			snap, _ = model.Build(snap, objects)
			plan, _ = proxy.New(plan, snap, cfg)
			want = nftables.Compile(want, plan)
			change := nftables.Diff(have, want)
			if err := k.Apply(change); err != nil {
				t.Fatalf("seed %d step %d: %v\n%s", seed, step, err, change.Text())
			}
			got, _ := k.List()
			if d := nftables.Diff(got, nftables.Compile(nil, plan)); !d.Empty() {
				t.Fatalf("seed %d step %d: after the change\n%sstill missing\n%s", seed, step, change.Text(), d.Text())
			}
			have = want
		}
	}
}

// TestFaultsHeal: with one write in ten failing, retries end where no failure would.
func TestFaultsHeal(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 9))
		k := kernel.NewFakeNFTables(seed)
		k.FailRate, k.Limit = 0.1, 20
		b := loop.NewNFTables(k)
		cfg, objects := random.Settings(r), random.Cluster(r)
		var snap *model.Snapshot
		var plan *proxy.Plan
		for range 8 {
			objects = random.Change(r, objects)
			snap, _ = model.Build(snap, objects)
			plan, _ = proxy.New(plan, snap, cfg)
			_, _ = b.Apply(context.Background(), plan)
		}
		settle(t, b, plan)
		k.FailRate = 0
		got, _ := k.List()
		if d := nftables.Diff(got, nftables.Compile(nil, plan)); !d.Empty() {
			t.Fatalf("seed %d: not as wanted\n%s", seed, d.Text())
		}
	}
}

// settle applies as the loop does: until nothing is left to do.
func settle(t *testing.T, b loop.Backend, plan *proxy.Plan) {
	t.Helper()
	for range 50 {
		problems, err := b.Apply(context.Background(), plan)
		if err == nil && len(problems) == 0 {
			return
		}
	}
	t.Fatal("50 retries were not enough")
}

// TestSteps: what one transaction of a Change does cannot go wrong for a packet that met
// the state before it: no frontend changes together with a chain that comes, or with
// anything that goes which a frontend may have led to.
func TestSteps(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		cfg, objects := random.Settings(r), random.Cluster(r)
		var have *nftables.Program
		split := 0
		for range 8 {
			snap, _ := model.Build(nil, objects)
			plan, _ := proxy.New(nil, snap, cfg)
			want := nftables.Compile(have, plan)
			steps := nftables.Diff(have, want).Whole().Steps()
			if have != nil {
				split = max(split, len(steps))
				for i, s := range steps {
					checkStep(t, seed, i, s)
				}
			}
			have, objects = want, random.Change(r, objects)
		}
		if split < 2 && seed == 0 {
			t.Error("no Change has more than one step")
		}
	}
}

func checkStep(t *testing.T, seed uint64, i int, s *nftables.Change) {
	t.Helper()
	added := map[string]bool{}
	frontends, whole := false, false
	for _, o := range s.Ops {
		switch {
		case o.Action == nftables.AddTable || o.Action == nftables.ResetTable:
			whole = true
		case o.Elem != nil && o.Elem.Kind.Frontend():
			frontends = true
		case o.Action == nftables.AddElem:
			added[o.Elem.Kind.String()+o.Elem.Key] = true
		}
	}
	if !frontends || whole {
		return
	}
	for _, o := range s.Ops {
		gone := o.Action == nftables.DelElem && !o.Elem.Kind.Frontend() && !o.Elem.Kind.Interval() && !added[o.Elem.Kind.String()+o.Elem.Key]
		if gone || o.Action == nftables.AddChain || o.Action == nftables.EmptyChain || o.Action == nftables.DelChain {
			t.Fatalf("seed %d, step %d changes frontends together with %s:\n%s", seed, i, o.Text(), s.Text())
		}
	}
}
