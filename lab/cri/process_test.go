package cri

import "testing"

// TestListenToACinitThatDies: one that ends with its spec unread resets the
// connection, which must fail the start and nothing more.
func TestListenToACinitThatDies(t *testing.T) {
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if _, err := ours.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if lines, err := new(process).listen(ours); err == nil {
		t.Errorf("listen: %q, no error", lines)
	}
}
