package cri

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ips are the addresses the runtime reports for a Pod.
func (p *pod) ips() []string {
	p.t.Helper()
	resp, err := p.run.PodSandboxStatus(p.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		p.t.Fatal(err)
	}
	out := []string{resp.Status.Network.GetIp()}
	for _, ip := range resp.Status.Network.GetAdditionalIps() {
		out = append(out, ip.Ip)
	}
	return out
}

// listener is a container that says on a TCP port who it is and who asks.
func (p *pod) listener(port string) *box {
	p.t.Helper()
	config := shell("")
	config.Command = []string{"perl", "-MIO::Socket::IP", "-e", `
		my $s = IO::Socket::IP->new(LocalAddr => "::", LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1, V6Only => 0) or die "$@ $!";
		print "ready\n"; $| = 1;
		while (my $c = $s->accept) { my $l = <$c>; print $c "$ENV{HOSTNAME} hears ", $c->peerhost, " say $l"; close $c; }`, port}
	config.Command[3] = strings.ReplaceAll(config.Command[3], `print "ready\n"; $| = 1;`, `$| = 1; print "ready\n";`)
	b := p.container(config)
	b.waitOutput("stdout F ready")
	return b
}

// asks sends one line and returns the answer, with the client's address as the server saw it.
func (b *box) asks(host, port string) string {
	b.t.Helper()
	return strings.ReplaceAll(b.sh("echo hello | timeout 5 nc -w 3 "+host+" "+port), "::ffff:", "")
}

func TestPodNetwork(t *testing.T) {
	n := startNode(t, testCIDRs)
	server := n.pod("server")
	server.listener("8080")
	client := n.pod("client")
	from := client.container(shell(idle))
	host := n.pod("host", onNode).container(shell(idle))
	for i, nodeIP := range []string{"172.30.0.11", "fd00:30::11"} {
		at, own := server.ips()[i], client.ips()[i]
		if got := from.asks(at, "8080"); got != "server hears "+own+" say hello" {
			t.Errorf("Pod to Pod: %q", got)
		}
		if got := host.asks(at, "8080"); got != "server hears "+nodeIP+" say hello" {
			t.Errorf("node to Pod: %q", got)
		}
	}
	if got := host.pod.ips(); got[0] != "" {
		t.Errorf("a Pod on the node's network reports %q", got)
	}
	want := "default via 169.254.1.1 dev eth0\n169.254.1.1 dev eth0 scope link"
	if got := strings.ReplaceAll(from.sh("ip -4 route"), " \n", "\n"); strings.TrimSpace(got) != want {
		t.Errorf("routes: %q", got)
	}
	if got := from.sh("ip -6 addr show dev eth0 | grep -c tentative || true"); got != "0" {
		t.Errorf("%s tentative addresses", got)
	}
}

func TestNetworkComesWithCIDR(t *testing.T) {
	n := startNode(t, "")
	ready := func() *runtimeapi.RuntimeCondition {
		resp, err := n.run.Status(n.ctx(), &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status.Conditions[1]
	}
	if c := ready(); c.Status || c.Type != runtimeapi.NetworkReady || c.Reason == "" {
		t.Errorf("before: %v", c)
	}
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "early", Namespace: "default"}}
	if _, err := n.run.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: config}); err == nil || !strings.Contains(err.Error(), "default/early: the node has no pod CIDR yet") {
		t.Errorf("a Pod too early: %v", err)
	}
	n.pod("agent", onNode) // needs no Pod CIDR
	_, err := n.run.UpdateRuntimeConfig(n.ctx(), &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.244.7.0/24"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := ready(); !c.Status {
		t.Errorf("after: %v", c)
	}
	if got := n.pod("web").ips(); len(got) != 1 || got[0] != "10.244.7.2" {
		t.Errorf("addresses %q", got)
	}
}

func hostPort(hostIP string, port, to int32) func(*runtimeapi.PodSandboxConfig) {
	return func(c *runtimeapi.PodSandboxConfig) {
		c.PortMappings = append(c.PortMappings,
			&runtimeapi.PortMapping{Protocol: runtimeapi.Protocol_TCP, HostIp: hostIP, HostPort: port, ContainerPort: to},
			&runtimeapi.PortMapping{Protocol: runtimeapi.Protocol_UDP, HostIp: hostIP, HostPort: port, ContainerPort: to},
			&runtimeapi.PortMapping{Protocol: runtimeapi.Protocol_TCP, ContainerPort: 99})
	}
}

func TestHostPort(t *testing.T) {
	n := startNode(t, testCIDRs)
	web := n.pod("web", hostPort("", 5000, 8080))
	inside := web.listener("8080")
	local := n.pod("local", hostPort("127.0.0.1", 5001, 8080))
	local.listener("8080")
	host := n.pod("host", onNode).container(shell(idle))
	other := n.pod("other").container(shell(idle))
	podIP := web.ips()[0]
	for _, c := range []struct {
		from     *box
		to, port string
		want     string
	}{
		{host, "172.30.0.11", "5000", "web hears 172.30.0.11 say hello"},
		{host, "127.0.0.1", "5000", "web hears 172.30.0.11 say hello"},
		{host, "fd00:30::11", "5000", "web hears fd00:30::11 say hello"},
		{other, "172.30.0.11", "5000", "web hears " + other.pod.ips()[0] + " say hello"},
		{inside, "172.30.0.11", "5000", "web hears 172.30.0.11 say hello"},
		{host, "127.0.0.1", "5001", "local hears 172.30.0.11 say hello"},
		{other, podIP, "8080", "web hears " + other.pod.ips()[0] + " say hello"},
	} {
		if got := c.from.asks(c.to, c.port); got != c.want {
			t.Errorf("%s:%s: %q, want %q", c.to, c.port, got, c.want)
		}
	}
	if got := host.sh("echo x | nc -w 2 172.30.0.11 5001 || echo refused"); got != "refused" {
		t.Errorf("a port of 127.0.0.1 answered elsewhere: %q", got)
	}
	web.remove()
	if got := host.sh("echo x | nc -w 2 172.30.0.11 5000 || echo refused"); got != "refused" {
		t.Errorf("the port of a Pod removed: %q", got)
	}
	if got := host.asks("127.0.0.1", "5001"); got != "local hears 172.30.0.11 say hello" {
		t.Errorf("the other Pod's port: %q", got)
	}
	local.remove()
	if _, err := os.Stat("/usr/sbin/nft"); err == nil {
		config := shell(idle)
		security(config).Privileged = true
		if got := n.pod("nft", onNode).container(config).sh("nft list tables"); got != "" {
			t.Errorf("tables left: %s", got)
		}
	}
}

// What a Pod took is given back, and the state directory of a runtime that ended is good for the next.
func TestNothingLeft(t *testing.T) {
	needNode(t)
	dir := t.TempDir()
	before := linkNames(t)
	n := startNodeIn(t, dir, testCIDRs)
	p := n.pod("web", hostPort("", 5000, 80))
	p.container(shell(idle))
	p.container(shell("exit 1")).ended()
	p.remove()
	if got := linkNames(t); got != before {
		t.Errorf("interfaces %q, before %q", got, before)
	}
	if got, err := filepath.Glob(filepath.Join(dir, "state", "*", "*")); err != nil || len(got) > 0 {
		t.Errorf("files left: %q, %v", got, err)
	}
	running := n.pod("web2", hostPort("", 5000, 80)).container(shell("sleep 600"))
	if got := running.pod.ips()[0]; got != "10.244.1.3" {
		t.Errorf("the second Pod has %s", got)
	}
	n.stop()
	if got := linkNames(t); got != before {
		t.Errorf("interfaces after the end %q, before %q", got, before)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts left: %v\n%s", err, mounts)
	}
	if got := childCount(t); got != 0 {
		t.Errorf("%d processes left", got)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil || len(routes) != 0 {
		t.Errorf("routes left: %v, %v", routes, err)
	}
	again := startNodeIn(t, dir, testCIDRs)
	again.pod("web3").container(shell("exit 0")).ended()
}

// A runtime that lives for days may not keep a file per Pod, container or exec.
func TestNoFileLeft(t *testing.T) {
	n := startNode(t, testCIDRs)
	round := func() {
		p := n.pod("web")
		b := p.container(shell(idle))
		b.sh("true")
		if err := b.exec(remotecommand.StreamOptions{Stdout: io.Discard, Tty: true}, "true"); err != nil {
			t.Error(err)
		}
		config := shell("")
		config.Command = []string{"absent"}
		if _, err := p.tryContainer(config); err == nil {
			t.Error("an absent program started")
		}
		p.remove()
	}
	round() // what is opened once stays
	before := openFiles(t)
	for range 3 {
		round()
	}
	eventually(t, "the files of three rounds are closed", func() bool { return len(openFiles(t)) <= len(before) })
	if t.Failed() {
		t.Logf("before %q\nafter %q", before, openFiles(t))
	}
}

func openFiles(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			out = append(out, target)
		}
	}
	return out
}

// Killing the node's process is a power-off: its Pods go with it, and a new process takes over the directory.
func TestPowerOff(t *testing.T) {
	needNode(t)
	dir, before := t.TempDir(), linkNames(t)
	for i := range 2 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), serveEnv+"="+dir)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p := newClient(t, dir, testCIDRs).pod("web", hostPort("", 5000, 80))
		b := p.container(shell("trap '' TERM; echo up; while :; do sleep 0.1; done"))
		b.waitOutput("stdout F up")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, as meant
		if got := childCount(t); got != 0 {
			t.Errorf("round %d: %d processes left", i, got)
		}
		eventually(t, "the Pod's interface goes", func() bool { return linkNames(t) == before })
	}
	startNodeIn(t, dir, "") // removes the table of host ports
}

// eventually waits for what the kernel does in its own time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Errorf("after 5 s still waiting: %s", what)
}

// childCount is how many other living processes this process namespace has. Process 1 of a node reaps orphans; this
// test does not, so those that only wait for that are not counted.
func childCount(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	count := -1 // ourselves
	for _, name := range all {
		if text, err := os.ReadFile(name); err == nil && !strings.Contains(string(text), "State:\tZ") {
			count++
		}
	}
	return count
}
