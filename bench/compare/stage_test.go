package main

import (
	"testing"
	"time"

	"fairway/test/netlab"
)

// The client reaches every endpoint's address on the direct way, and the server tells
// which one it was; a Service address leads nowhere without a proxy.
func TestStage(t *testing.T) {
	if err := netlab.Missing(); err != nil {
		t.Skip(err)
	}
	st, err := newStage(3, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	far := endpoint(2, 9)
	seen := st.backend.await(far.Addr())
	st.dial.do(func() {
		for _, to := range []int{0, 9} {
			if _, err := connect(endpoint(2, to), time.Second); err != nil {
				t.Errorf("%s: %v", endpoint(2, to), err)
			}
		}
		if _, err := connect(vip(0), 50*time.Millisecond); err == nil {
			t.Error("a Service answers without a proxy")
		}
	})
	select {
	case <-seen:
	case <-time.After(time.Second):
		t.Errorf("the server did not see %s", far)
	}
	if n := st.silent(3); n != 3 {
		t.Errorf("%d of 3 Services are silent without a proxy", n)
	}
}
