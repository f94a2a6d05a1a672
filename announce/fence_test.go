package announce

import (
	"testing"
	"time"
)

// walk ticks the fence from one moment to another.
func walk(f *Fence, from, to time.Duration) {
	for now := from; now <= to; now += TickEvery {
		f.Tick(now)
	}
}

func TestFence(t *testing.T) {
	const s = time.Second
	f := &Fence{Quiet: 3 * s}
	expect := func(now time.Duration, open bool) {
		t.Helper()
		if f.Open(now) != open {
			t.Errorf("at %s open is %v, want %v", now, !open, open)
		}
	}
	expect(s, false)
	f.Extend(10 * s)
	walk(f, s, 9*s)
	expect(9*s, true)
	expect(10*s, false)
	f.Extend(9 * s) // an answer that came late takes nothing away
	expect(9*s+s/2, true)

	walk(f, 9*s, 20*s) // lapsed while the server answers: silent for good
	expect(20*s, false)
	f.Unreachable()
	walk(f, 20*s, 22*s+900*time.Millisecond)
	expect(22*s+900*time.Millisecond, false)
	walk(f, 23*s, 30*s)
	expect(30*s, true)
	expect(31*s, false) // frozen: nobody ticks
	f.Tick(40 * s)      // thawed
	expect(40*s, false)
	walk(f, 40*s, 44*s)
	expect(44*s, true)
	f.Extend(50 * s)
	walk(f, 44*s, 60*s) // extended means reachable: the next lapse is silent again
	expect(60*s, false)
	f.Extend(70 * s)
	f.Shut()
	expect(61*s, false)
}

func TestFenceNeverHolds(t *testing.T) {
	f := &Fence{}
	f.Unreachable()
	walk(f, time.Second, time.Minute)
	if f.Open(time.Minute) {
		t.Error("open without Quiet")
	}
}

func TestNowMoves(t *testing.T) {
	a := Now()
	time.Sleep(5 * time.Millisecond)
	if d := Now() - a; a == 0 || d < 5*time.Millisecond || d > 5*time.Second {
		t.Errorf("5 ms took %s", d)
	}
}
