package kube

import (
	"testing"
	"time"
)

// TestRetry: however long an outage lasts, a node hears of what is new within six
// seconds of its end, and it does not try more than twice a second.
func TestRetry(t *testing.T) {
	next := retry().DelayFunc()
	for i := range 50 {
		if d := next(); d > 6*time.Second || d < 500*time.Millisecond {
			t.Errorf("try %d waits %s", i, d)
		}
	}
}
