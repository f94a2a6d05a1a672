package kernel_test

import (
	"context"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/test/story"
)

// TestNFTablesCounters: every flow is counted once at its ServicePort, by whatever
// frontend it came.
func TestNFTablesCounters(t *testing.T) {
	requireKernel(t)
	s := story.Load(t, "../../proxy/nftables/testdata/schedulers.txtar")
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b := loop.NewNFTables(kernel.NewNFTables(lab.Node.NS()))
	b.CountFlows(true)
	apply(t, b, plan)
	want := map[string]uint64{}
	for _, p := range s.Packets {
		for range 3 {
			if o, err := lab.Send(p, answer); err != nil || !o.Reached() {
				t.Fatalf("%s: %s %v", p, o, err)
			}
			want[plan.Lookup(p.Dst, p.Proto).Key.String()]++
		}
	}
	counts, err := b.Counters(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if c.Connections != want[c.Key.String()] {
			t.Errorf("%s: %d flows counted, %d were made", c.Key, c.Connections, want[c.Key.String()])
		}
		delete(want, c.Key.String())
	}
	if len(want) > 0 {
		t.Errorf("not counted: %v", want)
	}
	if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Errorf("audit of counting tables: %v %q", err, lines)
	}
	// Without counters the table has another shape: it is replaced, and nothing is lost.
	plain := loop.NewNFTables(kernel.NewNFTables(lab.Node.NS()))
	apply(t, plain, plan)
	sendAll(t, lab, plan, s.Packets[:2])
}
