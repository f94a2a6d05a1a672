package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asFairway is a path that runs this test's program as the command.
func asFairway(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fairway-test") // where a normal user may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "fairway")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// inside runs a shell script in namespaces of its own, network and mounts, for some
// seconds at most, and returns what it printed.
func inside(t *testing.T, script string, args ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	c := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	timer := time.AfterFunc(40*time.Second, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

const web = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, clusterIP: 10.96.0.80, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.5]}]
`

// TestRefusedModeChangesNothing: a start that is refused leaves the node's settings as
// they were, and says what to do.
func TestRefusedModeChangesNothing(t *testing.T) {
	out := inside(t, `mount --make-rprivate / && mount -t tmpfs none /run && mount -t tmpfs none /sys/fs/cgroup || exit 1
		timeout 20 "$1" run --roles proxy --proxy-mode ebpf --manifests "$2"
		echo "exit $?, close_wait $(cat /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait)"`, asFairway(t), t.TempDir())
	for _, want := range []string{"exit 2, close_wait 60", "mount -t cgroup2 none /sys/fs/cgroup", "nsenter --net="} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestNormalUser: without privileges the log tells everything once and promises nothing.
func TestNormalUser(t *testing.T) {
	fairway := asFairway(t)
	dir := filepath.Dir(fairway)
	for name, text := range map[string]string{"web.yaml": web, "config": "loadBalancer: {stateFile: \"\"}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := inside(t, `ip link set lo up; ip link add d0 type veth peer name d1 && ip addr add 10.77.0.1/24 dev d0 && ip link set d1 up && ip link set d0 up || exit 1
		setpriv --reuid 65534 --regid 65534 --clear-groups timeout -s INT 5 "$1" run --config "$2/config" --roles proxy --proxy-mode userspace --manifests "$2" 2>&1
		true`, fairway, dir)
	once := map[string]int{}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "SettingNotApplied") {
			_, rest, _ := strings.Cut(line, "level=")
			once[rest]++
		}
	}
	for line, n := range once {
		if n > 1 || !strings.HasPrefix(line, "WARN msg=") || !strings.Contains(line, "object=") {
			t.Errorf("%d times %s", n, line)
		}
	}
	if len(once) == 0 {
		t.Error("no setting is refused")
	}
	for _, want := range []string{"10.96.0.80 of default/web", "stopped; what this process listened on"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, noise := range []string{`field=""`, "kube-proxy's nftables tables", "the rules stay"} {
		if strings.Contains(out, noise) {
			t.Errorf("the log has %q", noise)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
