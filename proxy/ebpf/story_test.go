package ebpf_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/ebpf"
	"fairway/test/random"
	"fairway/test/story"
)

// stories are this room's own and the Plan's: the latter for the oracle's sake.
func stories(t *testing.T) []*story.Story {
	return append(story.Glob(t, "testdata/*.txtar"), story.Glob(t, "../testdata/*.txtar")...)
}

func noAddr(netip.Addr) bool { return false }

func TestStories(t *testing.T) {
	for _, s := range stories(t) {
		t.Run(s.Path, func(t *testing.T) {
			s.Config = s.Config.WithMode(proxy.EBPF)
			plan, problems := s.Plan()
			p := ebpf.Compile(nil, plan)
			s.Check(t, "maps", p.Text())
			s.Check(t, "ebpf-problems", story.Problems(problems))
			for _, pkt := range s.Packets {
				checkTrace(t, p, plan, pkt)
			}
			s.Check(t, "maps-trace", traceText(p, s.Packets))
		})
	}
}

func checkTrace(t *testing.T, p *ebpf.Program, plan *proxy.Plan, pkt packet.Packet) {
	t.Helper()
	if got, want := p.Trace(pkt, noAddr), plan.Answer(pkt); !got.Equal(want) {
		t.Fatalf("%s in %q local %v socket %v\n got %s\nwant %s\n%v\n%s\n%s", pkt, pkt.In, pkt.Local, pkt.OnNode, got, want, got.Steps, plan.Text(), p.Text())
	}
}

func traceText(p *ebpf.Program, packets []packet.Packet) string {
	out := ""
	for _, pkt := range packets {
		v := p.Trace(pkt, noAddr)
		out += pkt.String() + " => " + v.String() + "\n"
		for _, s := range v.Steps {
			out += "  " + s.Where + ": " + s.What + "\n"
		}
	}
	return out
}

// TestTraceIsAnswer: for any cluster, settings and packet, walking the maps gives what
// the plan says.
func TestTraceIsAnswer(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 7))
		snap, _ := model.Build(nil, random.Cluster(r))
		plan, _ := proxy.New(nil, snap, random.Settings(r).WithMode(proxy.EBPF))
		p := ebpf.Compile(nil, plan)
		for _, pkt := range random.Packets(r, plan, 40) {
			pkt.OnNode = pkt.Local || r.IntN(2) == 0
			checkTrace(t, p, plan, pkt)
		}
	}
}

// TestDiffReachesAnything: from any Program the Change to any other leads there, and on
// the way no frontend points at a pool that is not there.
func TestDiffReachesAnything(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 8))
		cfg, objects := random.Settings(r).WithMode(proxy.EBPF), random.Cluster(r)
		kernel := maps{}
		var have, want *ebpf.Program
		var snap *model.Snapshot
		var plan *proxy.Plan
		for step := range 8 {
			if r.IntN(5) == 0 {
				cfg = random.Settings(r).WithMode(proxy.EBPF)
			}
			objects = random.Change(r, objects)
			snap, _ = model.Build(snap, objects)
			plan, _ = proxy.New(plan, snap, cfg)
			want = ebpf.Compile(want, plan)
			kernel.apply(t, ebpf.Diff(have, want))
			if d := ebpf.Diff(ebpf.FromEntries(kernel.entries()), ebpf.Compile(nil, plan)); !d.Empty() {
				t.Fatalf("seed %d step %d: still missing\n%s", seed, step, d.Text())
			}
			have = want
		}
	}
}

// maps is the kernel's part, element by element.
type maps map[[2]string]ebpf.Entry

func (m maps) apply(t *testing.T, c *ebpf.Change) {
	for _, e := range c.Put() {
		m[[2]string{e.Kind.String(), e.Key}] = e
		m.check(t)
	}
	for _, e := range c.Delete {
		delete(m, [2]string{e.Kind.String(), e.Key})
		m.check(t)
	}
}

// check looks for frontends whose first chunk is not there.
func (m maps) check(t *testing.T) {
	t.Helper()
	for k, e := range m {
		if k[0] != ebpf.Frontends.String() {
			continue
		}
		for _, id := range []string{e.Value[8:16], e.Value[16:24]} {
			if _, ok := m[[2]string{ebpf.Pools.String(), id + "\x00\x00\x00\x00\x00\x00\x00\x00"}]; !ok && id != "\x00\x00\x00\x00\x00\x00\x00\x00" {
				t.Fatalf("%s points at nothing", e)
			}
		}
	}
}

func (m maps) entries() []ebpf.Entry {
	var out []ebpf.Entry
	for _, e := range m {
		out = append(out, e)
	}
	return out
}

// TestKeeps: what did not change is not compiled again.
func TestKeeps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	snap, _ := model.Build(nil, random.Cluster(r))
	cfg := random.Settings(r).WithMode(proxy.EBPF)
	plan, _ := proxy.New(nil, snap, cfg)
	first := ebpf.Compile(nil, plan)
	second := ebpf.Compile(first, plan)
	if !ebpf.Diff(first, second).Empty() {
		t.Error("the same plan differs from itself")
	}
	if n := testing.AllocsPerRun(10, func() { second = ebpf.Compile(first, plan) }); n > 60 {
		t.Errorf("compiling an unchanged plan allocates %v times", n)
	}
}

func TestSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 50 {
		snap, _ := model.Build(nil, random.Cluster(r))
		plan, _ := proxy.New(nil, snap, random.Settings(r).WithMode(proxy.EBPF))
		for _, e := range ebpf.Compile(nil, plan).Entries() {
			if len(e.Key) != e.Kind.KeySize() || len(e.Value) != e.Kind.ValueSize() {
				t.Fatalf("%s: key of %d bytes, value of %d", e, len(e.Key), len(e.Value))
			}
		}
	}
	if !slices.IsSorted(ebpf.Kinds()) {
		t.Error("kinds are out of order")
	}
}
