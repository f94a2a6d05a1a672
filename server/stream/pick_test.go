package stream

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func addrs(n int) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range n {
		out = append(out, netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", i/250, i%250+1)))
	}
	return out
}

func client(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
}

func spread(l *live, clients int) map[netip.AddrPort]int {
	out := map[netip.AddrPort]int{}
	for i := range clients {
		out[l.pick(client(i), nil).addr]++
	}
	return out
}

func TestSchedulers(t *testing.T) {
	for sch, slack := range map[Scheduler]int{RoundRobin: 0, Random: 120, LeastConn: 0, SourceHash: 120, Maglev: 120} {
		l := newLive(&Route{Targets: addrs(4), Scheduler: sch}, nil, nil)
		for a, n := range spread(l, 4000) {
			if n < 1000-slack || n > 1000+slack {
				t.Errorf("%s: %d of 4000 to %s", sch, n, a)
			}
		}
		var tried []*target
		for range 4 {
			tr := l.pick(client(1), tried)
			if tr == nil || len(tried) > 0 && tried[0] == tr {
				t.Fatalf("%s: after %d tried: %v", sch, len(tried), tr)
			}
			tried = append(tried, tr)
		}
		if tr := l.pick(client(1), tried); tr != nil {
			t.Errorf("%s: all are tried, and yet %s", sch, tr.addr)
		}
		if tr := newLive(&Route{Scheduler: sch}, nil, nil).pick(client(1), nil); tr != nil {
			t.Errorf("%s: %s of none", sch, tr.addr)
		}
	}
}

func TestLeastConn(t *testing.T) {
	l := newLive(&Route{Targets: addrs(3), Scheduler: LeastConn}, nil, nil)
	l.targets[0].active.Store(5)
	l.targets[1].active.Store(2)
	l.targets[2].active.Store(9)
	if got := l.pick(client(1), nil); got != l.targets[1] {
		t.Errorf("%s has %d", got.addr, got.active.Load())
	}
}

// TestMaglevMoves: when one of ten targets goes, few clients of the others move, and the
// order of the list changes nothing for most.
func TestMaglevMoves(t *testing.T) {
	all := addrs(10)
	before := newLive(&Route{Targets: all, Scheduler: Maglev}, nil, nil)
	after := newLive(&Route{Targets: all[:9], Scheduler: Maglev}, before, nil)
	moved := 0
	for i := range 10000 {
		was, now := before.pick(client(i), nil).addr, after.pick(client(i), nil).addr
		if was != all[9] && was != now {
			moved++
		}
	}
	if moved > 300 {
		t.Errorf("%d of 9000 moved", moved)
	}
}

// TestCountsLast: counts and turn outlive a route of their name.
func TestCountsLast(t *testing.T) {
	a := newLive(&Route{Name: "r", Targets: addrs(3)}, nil, nil)
	first := a.pick(client(1), nil)
	flow{a, first}.begin()
	b := newLive(&Route{Name: "r", Targets: addrs(3)[1:]}, a, nil)
	if b.sum.total.Load() != 1 || b.turn.Load() != 1 || b.targets[0] != a.targets[1] {
		t.Errorf("total %d, turn %d", b.sum.total.Load(), b.turn.Load())
	}
}

func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClients()
		r := &Route{Targets: addrs(3), Affinity: time.Minute}
		l := newLive(r, nil, c)
		mine := l.pick(client(1), nil)
		for range 5 { // each connection starts the time anew
			time.Sleep(50 * time.Second)
			if got := l.pick(client(1), nil); got != mine {
				t.Fatalf("from %s to %s", mine.addr, got.addr)
			}
			l.pick(client(2), nil)
		}
		// The other list of the Service port has the target as well.
		other := newLive(&Route{Targets: []netip.AddrPort{addrs(9)[8], mine.addr}, Affinity: time.Minute}, nil, c)
		if got := other.pick(client(1), nil); got.addr != mine.addr {
			t.Errorf("by the other list to %s", got.addr)
		}
		// A target that does not answer is left, and the client stays with the next.
		next := l.pick(client(1), []*target{mine})
		if got := l.pick(client(1), nil); next == mine || got != next {
			t.Errorf("after a failure %s, then %s", next.addr, got.addr)
		}
		time.Sleep(61 * time.Second)
		seen := map[*target]bool{}
		for range 3 {
			seen[l.pick(client(1), nil)] = true
			time.Sleep(61 * time.Second)
		}
		if len(seen) != 3 {
			t.Errorf("after the time was over: %d targets seen", len(seen))
		}
		for i := range maxClients + 10 {
			l.pick(client(i), nil)
			l.pick(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), nil)
		}
		if len(c.at) > maxClients {
			t.Errorf("%d clients remembered", len(c.at))
		}
	})
}
