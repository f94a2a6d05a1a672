package cluster

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"fairway/lab/netspace"
	"fairway/lab/state"

	"golang.org/x/sys/unix"
)

// TestMain sends the process' first thread, and it alone, into a network
// namespace of its own, which is what work inside a lab can do to it.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	if os.Geteuid() == 0 {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestLabNetworksNeverHoldsTheMachinesOwn: every process in the namespaces
// returned is killed by down.
func TestLabNetworksNeverHoldsTheMachinesOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	own, err := state.NetworkInode("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if first, err := state.NetworkInode("/proc/self/ns/net"); err != nil || first == own {
		t.Fatalf("the first thread is in namespace %d, %v, as the others are: the test shows nothing", first, err)
	}
	lan, err := netspace.New()
	if err != nil {
		t.Fatal(err)
	}
	defer lan.Close()
	inside := exec.Command("sleep", "100")
	outside := exec.Command("sleep", "100")
	for _, err := range []error{netspace.Start(lan, inside), outside.Start()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*exec.Cmd{inside, outside} {
		defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(lan.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	// The outside one stands for a record that a process number used again has
	// made wrong; with the lab's namespaces open it would be the fabric's.
	got, err := labNetworks([]state.Process{{PID: inside.Process.Pid}, {PID: outside.Process.Pid}, {PID: os.Getpid()}})
	if err != nil {
		t.Fatal(err)
	}
	if got[own] || !got[st.Ino] {
		t.Errorf("namespaces %v: the machine's own is %d, the lab's %d", got, own, st.Ino)
	}
}
