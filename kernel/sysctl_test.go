package kernel_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
)

func sysctl(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/root/proc/sys/net/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// TestConntrackSettings: what is asked for is set in the namespace, what is not stays, and
// all of it can be given back, less what somebody changed since.
func TestConntrackSettings(t *testing.T) {
	inNamespace(t)
	const dir = "netfilter/nf_conntrack_"
	before := map[string]string{}
	for _, name := range []string{"tcp_timeout_established", "tcp_timeout_close_wait", "udp_timeout", "udp_timeout_stream", "tcp_be_liberal", "max"} {
		before[name] = sysctl(t, dir+name)
	}
	errs := kernel.ConntrackSettings{TCPEstablished: 2 * time.Hour, TCPCloseWait: 30 * time.Minute, UDP: 41 * time.Second, TCPBeLiberal: true}.Apply()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, want := range map[string]string{"tcp_timeout_established": "7200", "tcp_timeout_close_wait": "1800", "udp_timeout": "41",
		"udp_timeout_stream": before["udp_timeout_stream"], "tcp_be_liberal": "1", "max": before["max"]} {
		if got := sysctl(t, dir+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	// A second run must not take the first one's values for the node's own.
	if errs := (kernel.ConntrackSettings{UDP: 42 * time.Second}).Apply(); len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := os.WriteFile("/proc/sys/net/"+dir+"tcp_timeout_close_wait", []byte("77"), 0o644); err != nil {
		t.Fatal(err)
	}
	restored, err := kernel.RestoreSysctls(0)
	if err != nil || len(restored) != 3 {
		t.Errorf("given back: %v, %v", restored, err)
	}
	before["tcp_timeout_close_wait"] = "77"
	for name, want := range before {
		if got := sysctl(t, dir+name); got != want {
			t.Errorf("given back, %s is %s, want %s", name, got, want)
		}
	}
	if again, err := kernel.RestoreSysctls(0); err != nil || len(again) > 0 {
		t.Errorf("given back twice: %v, %v", again, err)
	}
}

// TestConntrackMaxNotWritable: outside the first network namespace the limit cannot be
// set: that is told with its name, and the rest is set all the same.
func TestConntrackMaxNotWritable(t *testing.T) {
	inNamespace(t)
	errs := kernel.ConntrackSettings{MaxPerCore: 1 << 20, Min: 1 << 20, UDP: 43 * time.Second}.Apply()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "nf_conntrack_max") {
		t.Errorf("errors %v, want one about nf_conntrack_max", errs)
	}
	if got := sysctl(t, "netfilter/nf_conntrack_udp_timeout"); got != "43" {
		t.Errorf("udp_timeout is %s, want 43", got)
	}
	if _, err := kernel.RestoreSysctls(0); err != nil {
		t.Error(err)
	}
}
