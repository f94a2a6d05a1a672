package matrix

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"fairway/packet"
	"fairway/proxy"
	"fairway/trace"
)

// TestTrace: the rules of every mode say what the Plan says, in cells enough that any
// four values meet (three in short mode), or with FAIRWAY_MATRIX=all, which takes
// minutes, in every possible cell.
func TestTrace(t *testing.T) {
	var cells []Cell
	switch {
	case os.Getenv("FAIRWAY_MATRIX") == "all":
		cells = everything()
	case testing.Short():
		cells = rowsOf(cover(sizes(), 3, possible))
	default:
		cells = rowsOf(cover(sizes(), 4, possible))
	}
	for _, m := range modes() {
		if m.rules == nil {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			fates := traceAll(t, m, cells)
			t.Logf("%s: %d cells traced: %d forwarded, %d rejected, %d dropped, %d passed", m.name, len(cells),
				fates[packet.Forward], fates[packet.Reject], fates[packet.Drop], fates[packet.Pass])
			for _, f := range []packet.Action{packet.Forward, packet.Reject, packet.Drop, packet.Pass} {
				if fates[f] < len(cells)/200 {
					t.Errorf("only %d cells are to %s", fates[f], f)
				}
			}
		})
	}
}

// rowsOf makes cells, all or with FAIRWAY_MATRIX_ONLY=WORDS those whose name has them.
func rowsOf(rows [][]int) []Cell {
	var out []Cell
	for _, r := range rows {
		if c := cellOf(r); strings.Contains(c.String(), os.Getenv("FAIRWAY_MATRIX_ONLY")) {
			out = append(out, c)
		}
	}
	return out
}

// traceAll takes one Service and node at a time, so that rules stay few.
func traceAll(t *testing.T, m mode, cells []Cell) map[packet.Action]int {
	type one struct {
		node Node
		v    variant
	}
	jobs := map[one][]Cell{}
	for _, c := range cells {
		k := one{c.Node, c.variant()}
		jobs[k] = append(jobs[k], c)
	}
	queue := make(chan []Cell, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var mu sync.Mutex
	var wg sync.WaitGroup
	fates := map[packet.Action]int{}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for list := range queue {
				n := traceOne(t, m, list)
				mu.Lock()
				for f, k := range n {
					fates[f] += k
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return fates
}

// traceOne traces cells of one node and one Service.
func traceOne(t *testing.T, m mode, cells []Cell) map[packet.Action]int {
	plan, err := m.plan(cells[0].Node, []variant{cells[0].variant()})
	if err != nil {
		t.Error(err)
		return nil
	}
	rules := m.rules(plan)
	fates := map[packet.Action]int{}
	for _, c := range cells {
		fates[check(t, c, c.packet(0), plan, rules)]++
	}
	return fates
}

func check(t *testing.T, c Cell, p packet.Packet, plan *proxy.Plan, rules trace.Rules) packet.Action {
	want, got := plan.Answer(p), rules.Trace(p, local(plan.Config))
	if !got.Equal(want) {
		t.Errorf("%s\n%s in %q\nrules: %s\n%splan: %s\n%s", c, p, p.In, got, steps(got), want, steps(want))
	}
	return want.Action
}

func steps(v packet.Verdict) string {
	s := ""
	for _, one := range v.Steps {
		s += "  " + one.Where + ": " + one.What + "\n"
	}
	return s
}
