package kernel_test

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// otherNamespace makes a network namespace no thread is in and returns its descriptor.
func otherNamespace(t *testing.T) int {
	t.Helper()
	var ns netns.NsHandle
	var err error
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends here, in the new namespace
		ns, err = netns.New()
		close(done)
	}()
	if <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return int(ns)
}
