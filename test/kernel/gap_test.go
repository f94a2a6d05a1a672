package kernel_test

import (
	"sync/atomic"
	"testing"

	"fairway/packet"
	"fairway/test/netlab"
)

// connecting sends the packets in turn, one after the other, until stop, which returns how
// many it was. Each must arrive but those forgiven (nil for none).
func connecting(t *testing.T, lab *netlab.Lab, packets []packet.Packet, forgiven func(packet.Packet, netlab.Observation) bool) (stop func() int) {
	t.Helper()
	var stopped atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for ; !stopped.Load(); n++ {
			p := packets[n%len(packets)]
			o, err := lab.Send(p, answer)
			if err != nil || !o.Reached() && (forgiven == nil || !forgiven(p, o)) {
				t.Errorf("connect %d: %s %v", n, o, err)
				break
			}
		}
		done <- n
	}()
	return func() int {
		stopped.Store(true)
		return <-done
	}
}

// noGap changes endpoints many times and sends the story's first packets, of which each
// must arrive. Every so often the backend is replaced by a fresh one, as after a crash.
func noGap(t *testing.T, m mode, changes, restart, packets int) {
	t.Helper()
	s, plan, lab := mixed(t, m)
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	stop := connecting(t, lab, s.Packets[:packets], nil)
	for i := range changes {
		if i%restart == restart/2 {
			b = m.open(t, lab.Node)
		}
		apply(t, b, planWith(s, "dns", []string{"10.244.1.6", []string{"10.244.1.5", "10.244.2.7", ""}[i%3]}))
	}
	t.Logf("%d connects during %d changes", stop(), changes)
}
