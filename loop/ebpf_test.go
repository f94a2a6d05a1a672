package loop

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ebpf"
	"fairway/test/random"
)

// fakeMaps is the kernel's maps in memory. A write may fail, and what came before it
// stays; limit is how many elements one map holds.
type fakeMaps struct {
	r        *rand.Rand
	failRate float64
	limit    int
	maps     map[ebpf.Kind]map[string]string
	attached int
	forgot   []proxy.Flow
}

var errFake = errors.New("the kernel is in a bad mood")

func (f *fakeMaps) Apply(c *ebpf.Change) error {
	for _, e := range c.Put() {
		if f.r.Float64() < f.failRate {
			return errFake
		}
		if f.maps[e.Kind] == nil {
			f.maps[e.Kind] = map[string]string{}
		}
		if _, there := f.maps[e.Kind][e.Key]; !there && f.limit > 0 && len(f.maps[e.Kind]) >= f.limit {
			return errFake
		}
		f.maps[e.Kind][e.Key] = e.Value
	}
	for _, e := range c.Delete {
		if f.r.Float64() < f.failRate {
			return errFake
		}
		delete(f.maps[e.Kind], e.Key)
	}
	return nil
}

func (f *fakeMaps) List() (*ebpf.Program, error) {
	var out []ebpf.Entry
	for kind, m := range f.maps {
		for k, v := range m {
			out = append(out, ebpf.Entry{Kind: kind, Key: k, Value: v})
		}
	}
	return ebpf.FromEntries(out), nil
}

func (f *fakeMaps) Attach(proxy.Detector, bool) ([]string, error) {
	f.attached++
	if f.r.Float64() < f.failRate {
		return nil, errFake
	}
	return nil, nil
}

func (f *fakeMaps) Forget(list []proxy.Flow) (int, error) {
	f.forgot = append(f.forgot, list...)
	return len(list), nil
}
func (f *fakeMaps) Counters() (map[uint64]kernel.EBPFCount, error)        { return nil, nil }
func (f *fakeMaps) DropCounters(func(uint64) bool) error                  { return nil }
func (f *fakeMaps) Follow(ctx context.Context, links, addrs func()) error { <-ctx.Done(); return nil }
func (f *fakeMaps) Cleanup() error                                        { f.maps = map[ebpf.Kind]map[string]string{}; return nil }
func newFakeMaps(seed uint64) *fakeMaps {
	return &fakeMaps{r: rand.New(rand.NewPCG(seed, 21)), maps: map[ebpf.Kind]map[string]string{}}
}

// TestEBPFFaultsHeal: with one write in ten failing, retries end where no failure would,
// and programs are put in force only once the maps are right.
func TestEBPFFaultsHeal(t *testing.T) {
	for seed := range uint64(80) {
		f := newFakeMaps(seed)
		f.failRate = 0.1
		b := NewEBPF(f)
		r := rand.New(rand.NewPCG(seed, 22))
		cfg, objects := random.Settings(r).WithMode(proxy.EBPF), random.Cluster(r)
		var snap *model.Snapshot
		var plan *proxy.Plan
		for range 8 {
			objects = random.Change(r, objects)
			snap, _ = model.Build(snap, objects)
			plan, _ = proxy.New(plan, snap, cfg)
			problems, err := b.Apply(context.Background(), plan)
			if f.attached > 0 {
				continue
			}
			if err == nil && len(problems) == 0 {
				t.Fatalf("seed %d: applied and not attached", seed)
			}
		}
		f.failRate = 0
		for range 3 {
			if problems, err := b.Apply(context.Background(), plan); err != nil || len(problems) > 0 {
				t.Fatalf("seed %d: %v %v", seed, err, problems)
			}
		}
		have, _ := f.List()
		if d := ebpf.Diff(have, ebpf.Compile(nil, plan)); !d.Empty() {
			t.Fatalf("seed %d: not as wanted\n%s", seed, d.Text())
		}
	}
}

// TestEBPFFull: what does not fit is a Problem of its Service, and the others are served.
func TestEBPFFull(t *testing.T) {
	f := newFakeMaps(1)
	b := NewEBPF(f)
	r := rand.New(rand.NewPCG(5, 22))
	snap, _ := model.Build(nil, random.Cluster(r))
	plan, _ := proxy.New(nil, snap, random.Settings(r).WithMode(proxy.EBPF))
	f.limit = 5
	problems, err := b.Apply(context.Background(), plan)
	if err != nil || len(problems) == 0 {
		t.Fatalf("%v, %d problems", err, len(problems))
	}
	f.limit = 0
	if problems, err := b.Apply(context.Background(), plan); err != nil || len(problems) > 0 {
		t.Fatalf("with room again: %v %v", err, problems)
	}
}
