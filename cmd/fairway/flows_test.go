package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"fairway/proxy"
)

// TestFlowQueue: what could not be deleted is tried again, before what came later.
func TestFlowQueue(t *testing.T) {
	got := make(chan []proxy.Flow, 8)
	fail := true
	q := newFlowQueue(func(bool, int, time.Duration) {})
	q.again = time.Millisecond
	q.forget = func(_ context.Context, flows []proxy.Flow, v6 bool) (int, error) {
		if v6 {
			return 0, nil
		}
		if fail {
			fail = false
			q.add([]proxy.Flow{{Dst: netip.MustParseAddrPort("10.0.0.2:53")}})
			return 0, errors.New("busy")
		}
		got <- flows
		return len(flows), nil
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go q.run(ctx)
	q.add([]proxy.Flow{{Dst: netip.MustParseAddrPort("10.0.0.1:53")}})
	select {
	case list := <-got:
		if len(list) != 2 || list[0].Dst.String() != "10.0.0.1:53" || list[1].Dst.String() != "10.0.0.2:53" {
			t.Errorf("deleted %v", list)
		}
	case <-time.After(5 * time.Second):
		t.Error("never tried again")
	}
}
