package labtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairway/lab/state"

	"github.com/vishvananda/netlink"
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: busybox
        command: [sh, -c, "echo serving; while true; do printf 'HTTP/1.0 200 OK\r\n\r\nweb' | nc -l -p 8080 -q 1; done"]
        readinessProbe: {exec: {command: [sh, -c, "exit 0"]}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`

// TestLab walks one lab through its life, with a second one beside it.
func TestLab(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := machineNetwork(t)
	var labs sync.WaitGroup
	labs.Go(func() { b.run("--name", "one", "up", "--nodes", "2", "--peer", "kube-proxy") })
	labs.Go(func() { b.run("--name", "two", "up", "--nodes", "1", "--peer", "kube-proxy", "--family", "dual") })
	labs.Wait()
	if t.Failed() {
		return
	}
	t.Run("workload", b.workload)
	t.Run("places", b.places)
	t.Run("side by side", func(t *testing.T) {
		if out := b.run("--name", "two", "kubectl", "get", "deploy"); strings.Contains(out, "web") {
			t.Error("the second lab sees the first one's Deployment")
		}
		ips := b.run("--name", "two", "kubectl", "get", "nodes", "-o", "jsonpath={.items[*].status.addresses[*].address}")
		if !strings.Contains(ips, "172.30.0.11 fd00:30::11") {
			t.Errorf("node addresses of the dual-stack lab: %s", ips)
		}
	})
	t.Run("waiting", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){"unknown image": b.unknownImage, "power-off": b.powerOff} {
			t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
		}
	})
	t.Run("control plane off", b.controlPlaneOff)
	t.Run("down", func(t *testing.T) {
		one, two := b.networks("one"), b.networks("two")
		// A command that somebody left running must go too.
		stray := b.command("--name", "one", "exec", "client", "--", "sleep", "1000")
		if err := stray.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		b.run("--name", "one", "down")
		if err := stray.Wait(); err == nil {
			t.Error("the stray command ended well")
		}
		b.nothingLeft("one", one)
		b.run("--name", "two", "kubectl", "get", "nodes")
		b.run("--name", "two", "down")
		b.nothingLeft("two", two)
		if after := machineNetwork(t); after != before {
			t.Errorf("the machine's own network was\n%s\nand is\n%s", before, after)
		}
	})
}

func (b *bench) workload(t *testing.T) {
	b.apply("one", web)
	b.run("--name", "one", "kubectl", "rollout", "status", "deploy/web", "--timeout=60s")
	for _, place := range []string{"client", "node1", "fabric"} {
		for _, node := range []string{"172.30.0.11", "172.30.0.12"} {
			b.eventually(20*time.Second, "web", "--name", "one", "exec", place, "--",
				"curl", "-sS", "-m", "2", "http://"+node+":30080/")
		}
	}
	if out := b.run("--name", "one", "kubectl", "logs", "deploy/web"); !strings.Contains(out, "serving") {
		t.Errorf("kubectl logs: %q", out)
	}
	cmd := b.command("--name", "one", "kubectl", "exec", "deploy/web", "--", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("kubectl exec: %v, want exit code 7", err)
	}
}

func (b *bench) places(t *testing.T) {
	if out := b.run("--name", "one", "exec", "node2", "--", "sh", "-c", "hostname; cat /proc/1/cmdline"); !strings.HasPrefix(out, "node2\n") ||
		!strings.Contains(out, "daemon\x00node") {
		t.Errorf("on node2: %q", out)
	}
	if out := b.run("--name", "one", "exec", "client", "--", "kubectl", "get", "nodes", "-o", "name"); !strings.Contains(out, "node/node2") {
		t.Errorf("kubectl in client: %q", out)
	}
	var exit *exec.ExitError
	for _, place := range []string{"node1", "client"} {
		err := b.command("--name", "one", "exec", place, "--", "sh", "-c", "exit 5").Run()
		if !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Errorf("exec %s: %v, want exit code 5", place, err)
		}
	}
	if out := b.fails("--name", "one", "exec", "node9", "--", "true"); !strings.Contains(out, "node2") {
		t.Errorf("an unknown place's error names no known one: %q", out)
	}
	if out := b.fails("--name", "one", "up"); !strings.Contains(out, "is up already") {
		t.Errorf("a second up: %q", out)
	}
	if out := b.run("--name", "one", "logs", "node1"); !strings.Contains(out, "Kubelet version") {
		t.Errorf("logs node1: %.200q", out)
	}
	// The way to the outside must not exist.
	b.fails("--name", "one", "exec", "node1", "--", "curl", "-sS", "-m", "2", "http://1.1.1.1/")
}

func (b *bench) unknownImage(t *testing.T) {
	b.run("--name", "one", "kubectl", "run", "unknown", "--image=example.com/no/such:1")
	want := fmt.Sprintf("%s/one/images.yaml", b.root)
	b.eventually(20*time.Second, want, "--name", "one", "kubectl", "get", "pod", "unknown",
		"-o", "jsonpath={.status.containerStatuses[0].state.waiting.message}")
	entry := `images: [{match: ["example.com/no/*"], entrypoint: [/usr/bin/sleep, "1000"]}]`
	if err := os.WriteFile(want, []byte(entry), 0o644); err != nil {
		t.Fatal(err)
	}
	b.eventually(60*time.Second, "Running", "--name", "one", "kubectl", "get", "pod", "unknown", "-o", "jsonpath={.status.phase}")
}

func (b *bench) powerOff(t *testing.T) {
	if out := b.run("--name", "one", "add-node"); out != "node3\n" {
		t.Errorf("add-node printed %q", out)
	}
	b.run("--name", "one", "stop-node", "node2")
	began := time.Now()
	ready := `jsonpath={.status.conditions[?(@.type=="Ready")].status}`
	b.eventually(45*time.Second, "Unknown", "--name", "one", "kubectl", "get", "node", "node2", "-o", ready)
	t.Logf("NotReady %.1f s after the power-off", time.Since(began).Seconds())
	b.fails("--name", "one", "exec", "node2", "--", "true")
	b.run("--name", "one", "start-node", "node2")
	b.eventually(30*time.Second, "True", "--name", "one", "kubectl", "get", "node", "node2", "-o", ready)
	b.run("--name", "one", "kubectl", "rollout", "status", "deploy/web", "--timeout=60s")
	b.eventually(20*time.Second, "web", "--name", "one", "exec", "client", "--", "curl", "-sS", "-m", "2", "http://172.30.0.13:30080/")
}

// controlPlaneOff kills the control plane and starts it again: the nodes go on
// meanwhile, and what was there is there again.
func (b *bench) controlPlaneOff(t *testing.T) {
	b.run("--name", "one", "stop-node", "control-plane")
	for _, args := range [][]string{{"status"}, {"add-node"}} {
		if out := b.fails(append([]string{"--name", "one"}, args...)...); !strings.Contains(out, "start-node control-plane") {
			t.Errorf("%s does not say how to start the control plane: %q", args[0], out)
		}
	}
	if out := b.fails("--name", "one", "up"); !strings.Contains(out, "is up already") {
		t.Errorf("up with the control plane off: %q", out)
	}
	if out := b.run("--name", "one", "exec", "client", "--", "curl", "-sS", "-m", "2", "http://172.30.0.11:30080/"); out != "web" {
		t.Errorf("the Service answers %q", out)
	}
	b.run("--name", "one", "start-node", "control-plane")
	if out := b.fails("--name", "one", "start-node", "control-plane"); !strings.Contains(out, "runs already") {
		t.Errorf("a second start: %q", out)
	}
	b.run("--name", "one", "kubectl", "scale", "deploy/web", "--replicas=2")
	b.run("--name", "one", "kubectl", "rollout", "status", "deploy/web", "--timeout=60s")
}

// TestUpAfterACrash kills every process of a lab, and the launcher of another
// in the middle of its work; the next up must not care.
func TestUpAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	up := []string{"--name", "c", "up", "--nodes", "1", "--peer", "kube-proxy"}
	b.run(up...)
	dir := state.Dir{Root: b.root, Name: "c"}
	for _, name := range dir.Processes() {
		if err := dir.Process(name).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if out := b.fails("--name", "c", "status"); !strings.Contains(out, "is not running") {
		t.Errorf("status of a dead lab: %q", out)
	}
	b.run(up...)
	b.run("--name", "c", "down")

	launcher := b.command(up...)
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Wait()
	b.run(up...)
	networks := b.networks("c")
	b.run("--name", "c", "down")
	b.nothingLeft("c", networks)
}

// TestInterruptedUp presses Ctrl-C while a lab comes up.
func TestInterruptedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	launcher := b.command("--name", "i", "up", "--nodes", "1", "--peer", "kube-proxy")
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	networks := b.networks("i")
	if err := launcher.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := launcher.Wait(); err == nil {
		t.Error("an interrupted up succeeded")
	}
	b.nothingLeft("i", networks)
}

// machineNetwork writes down the links, addresses and routes of the namespace
// the test runs in.
func machineNetwork(t *testing.T) string {
	t.Helper()
	var s strings.Builder
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		fmt.Fprintln(&s, l.Attrs().Name, l.Attrs().OperState)
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			fmt.Fprintln(&s, " ", a.IPNet)
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		fmt.Fprintln(&s, r)
	}
	return s.String()
}
