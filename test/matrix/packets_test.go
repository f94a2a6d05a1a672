package matrix

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"
)

// TestPackets sends real packets through every mode's rules in a lab of namespaces, in
// cells in which any three values meet (two in short mode, four with
// FAIRWAY_MATRIX=all).
func TestPackets(t *testing.T) {
	if err := netlab.Missing(); err != nil {
		if os.Getenv("FAIRWAY_REQUIRE_KERNEL") == "1" {
			t.Fatalf("FAIRWAY_REQUIRE_KERNEL=1, but %v", err)
		}
		t.Skip(err)
	}
	var rows [][]int
	switch {
	case os.Getenv("FAIRWAY_MATRIX") == "all":
		rows = cover(sizes(), 4, sendable)
	case testing.Short():
		rows = cover(sizes(), 2, fewNodes)
	default:
		rows = cover(sizes(), 3, sendable)
	}
	groups := byNode(rowsOf(rows))
	for _, m := range modes() {
		if m.open == nil {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if m.missing != nil {
				requires(t, m)
			}
			start, sent := time.Now(), 0
			fates := map[packet.Action]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			slots := make(chan struct{}, 4) // most of a lab's time is waiting
			for _, g := range groups {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					n := runGroup(t, m, &g)
					mu.Lock()
					defer mu.Unlock()
					for f, k := range n {
						fates[f] += k
						sent += k
					}
				})
			}
			wg.Wait()
			t.Logf("%s: %d cells sent as packets on %d nodes in %.1f s: %d forwarded, %d rejected, %d dropped, %d passed", m.name, sent, len(groups),
				time.Since(start).Seconds(), fates[packet.Forward], fates[packet.Reject], fates[packet.Drop], fates[packet.Pass])
		})
	}
}

// requires skips a mode this kernel lacks: `make test-ipvs` runs it in a virtual machine
// whose kernel has it, and there nothing may be skipped.
func requires(t *testing.T, m mode) {
	t.Helper()
	switch err := m.missing(); {
	case err == nil:
	case os.Getenv("FAIRWAY_REQUIRE_"+strings.ToUpper(m.name)) == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// runGroup makes one node, sends the packets of all its cells, and counts what was to
// become of them.
func runGroup(t *testing.T, m mode, g *group) map[packet.Action]int {
	plan, err := m.plan(g.node, g.variants)
	if err != nil {
		t.Error(err)
		return nil
	}
	lab, err := netlab.New(g.node.layout())
	if err != nil {
		t.Error(err)
		return nil
	}
	defer lab.Close()
	b, stop, err := m.open(context.Background(), lab)
	if err != nil {
		t.Errorf("%s: %v", g.node, err)
		return nil
	}
	defer stop()
	if problems, err := b.Apply(context.Background(), plan); err != nil || len(problems) > 0 {
		t.Errorf("%s: %v %v", g.node, err, problems)
		return nil
	}
	if err := lab.ServeAll(plan); err != nil {
		t.Fatal(err)
	}
	fates := map[packet.Action]int{}
	packets, wants := make([]packet.Packet, len(g.cells)), make([]packet.Verdict, len(g.cells))
	for i, c := range g.cells {
		packets[i] = g.packet(c)
		wants[i] = plan.Answer(packets[i])
		fates[wants[i].Action]++
	}
	lab.CheckAll(len(g.cells), func(i int) bool { return wants[i].Affinity }, func(i int) {
		if why := lab.CannotSend(packets[i]); why != "" {
			t.Errorf("%s: %s cannot be sent: %s", g.cells[i], packets[i], why)
			return
		}
		if err := lab.Check(packets[i], wants[i]); err != nil {
			t.Errorf("%s\n%s: %v\nplan: %s\n%s%s", g.cells[i], packets[i], err, wants[i], steps(wants[i]), m.explain(plan, packets[i]))
		}
	})
	return fates
}

// explain is how the mode's rules trace a packet.
func (m mode) explain(plan *proxy.Plan, p packet.Packet) string {
	for _, o := range modes() {
		if o.proxy == m.proxy && o.rules != nil {
			v := o.rules(plan).Trace(p, local(plan.Config))
			return "rules: " + v.String() + "\n" + steps(v)
		}
	}
	return ""
}

// layout is the lab of a node: its pods, another node with its pods, a client outside.
func (n Node) layout() netlab.Layout {
	l := netlab.Layout{
		NodeAddrs: slices.Concat(node().both(), second().both()),
		Pods:      []netlab.Pod{{Addrs: here().both()}, {Addrs: localPod().both()}},
		Remote:    slices.Concat(there().both(), remotePod().both(), otherNode().both()),
		// The node's default route leads to the first of each family.
		Clients: append(addresses{"203.0.113.250", "2001:db8:113::250"}.both(), client().both()...),
	}
	if n.Detect == DetectBridge {
		l.Bridge = bridgeName
	}
	return l
}

// TestNodesDiffer: the cells come to every kind of node, and to each kind of packet on
// the wire.
func TestNodesDiffer(t *testing.T) {
	if os.Getenv("FAIRWAY_MATRIX_ONLY") != "" {
		t.Skip("only some cells are asked for")
	}
	var all strings.Builder
	for _, g := range byNode(rowsOf(cover(sizes(), 2, fewNodes))) {
		all.WriteString(g.node.String() + "\n")
	}
	for _, words := range []string{detects, nodePorts} {
		for _, w := range strings.Split(words, "|") {
			if !strings.Contains(all.String(), w) {
				t.Errorf("no node has %q", w)
			}
		}
	}
}
