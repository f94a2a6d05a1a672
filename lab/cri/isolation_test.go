package cri

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// security gives a test the security context of a container to change.
func security(c *runtimeapi.ContainerConfig) *runtimeapi.LinuxContainerSecurityContext {
	return c.Linux.SecurityContext
}

func TestRootShowsAnImage(t *testing.T) {
	n := startNode(t, testCIDRs)
	b := n.pod("web").container(shell(idle))
	// The directory of this test, the machine's home directories and its keys are out of sight.
	for _, path := range []string{n.dir, "/root/.bashrc", "/etc/shadow", "/etc/ssh", "/boot", "/sys/fs/cgroup/unified"} {
		if got := b.sh("test -e " + path + " && echo seen || echo hidden"); got != "hidden" {
			t.Errorf("%s: %s", path, got)
		}
	}
	for script, want := range map[string]string{
		"hostname":                          "web",
		"cat /etc/hostname":                 "web",
		"cat /etc/resolv.conf":              "nameserver 10.96.0.10\nsearch default.svc.cluster.local\noptions ndots:5",
		"ls /etc/ssl/private | wc -l":       "0",
		"id -un; id -Gn":                    "root\nroot",
		"echo $HOSTNAME $HOME; pwd":         "web /root\n/",
		"stat -c %a /tmp /var/tmp /dev/shm": "1777\n1777\n1777",
		"readlink -f /var/run":              "/run",
		"ls /dev | tr '\\n' ' '":            "core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero",
		"echo x > /usr/share/mine && cat /usr/share/mine && touch /opt/x /srv/x /run/x": "x",
		"echo -e 'a\\tb'": "a\tb",
		"env a-b=1 sh -c env | grep a-b; test -x /bin/sh": "a-b=1",
		"head -c1 /dev/zero | wc -c; echo > /dev/null":    "1",
	} {
		if got := b.sh(script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if _, err := os.Stat("/usr/share/mine"); err == nil {
		t.Error("a write in the container reached the machine")
	}
	if got := b.sh("tr '\\0' ' ' < /proc/1/cmdline"); !strings.HasPrefix(got, "sh -c trap") {
		t.Errorf("process 1: %q", got)
	}
}

func TestRights(t *testing.T) {
	p := startNode(t, testCIDRs).pod("web")
	status := "grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t' | tr '\\n' ' '"
	b := p.container(shell(status + "; echo; " + idle))
	const customaryBits = "CapPrm:00000000a80425fb CapEff:00000000a80425fb CapBnd:00000000a80425fb NoNewPrivs:0"
	if got := b.sh(status); got != customaryBits {
		t.Errorf("exec: %s", got)
	}
	b.waitOutput("stdout F " + customaryBits)
	for script, want := range map[string]string{
		"echo 1 > /proc/sys/net/ipv4/ip_forward": "Read-only file system",
		"mount -t tmpfs x /mnt":                  "",
		"ip link add d type dummy":               "",
		"mkdir /sys/x":                           "",
		"cat /proc/kcore | head -c1 | wc -c":     "0",
	} {
		if got := b.sh("(" + script + ") 2>&1 || echo refused"); want != "" && !strings.Contains(got, want) || want == "" && !strings.Contains(got, "refused") {
			t.Errorf("%s: %q", script, got)
		}
	}

	config := shell(idle)
	ctx := security(config)
	ctx.RunAsUser, ctx.RunAsGroup = &runtimeapi.Int64Value{Value: 1234}, &runtimeapi.Int64Value{Value: 55}
	ctx.SupplementalGroups, ctx.NoNewPrivs, ctx.ReadonlyRootfs = []int64{77}, true, true
	ctx.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}}
	b = p.container(config)
	want := "CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000001000 NoNewPrivs:1"
	if got := b.sh(status); got != want {
		t.Errorf("exec: %s", got)
	}
	if got := b.sh("id -u; id -g; id -G; echo $HOME"); got != "1234\n55\n55 77\n/" {
		t.Errorf("id: %q", got)
	}
	if got := b.sh("for f in /x /usr/x /etc/x /tmp/x /var/x /dev/x; do (echo > $f) 2>/dev/null && echo wrote $f; done; echo ok > /dev/shm/x; cat /dev/shm/x"); got != "ok" {
		t.Errorf("read-only root: %q", got)
	}
}

func TestReadOnlyRootAsRoot(t *testing.T) {
	config := shell(idle)
	security(config).ReadonlyRootfs = true
	b := startNode(t, testCIDRs).pod("web").container(config)
	if got := b.sh("for f in /x /usr/x /etc/x /etc/ssl/x /tmp/x /var/x; do touch $f 2>/dev/null && echo wrote $f; done; echo done"); got != "done" {
		t.Error(got)
	}
}

func TestPrivileged(t *testing.T) {
	p := startNode(t, testCIDRs).pod("agent", onNode)
	config := shell(idle)
	security(config).Privileged = true
	security(config).ReadonlyPaths, security(config).MaskedPaths = nil, nil
	b := p.container(config)
	b.sh("echo 1 > /proc/sys/net/ipv4/ip_forward")
	b.sh("mount -t tmpfs x /mnt && ip link add testbr type bridge && ip link del testbr")
	for _, device := range []string{"/dev/kmsg", "/dev/net/tun", "/dev/fuse"} {
		if _, err := os.Stat(device); err == nil {
			b.sh("test -c " + device)
		}
	}
	if got := b.sh("hostname; ip -o addr show dev lo | grep -c 172.30.0.11"); got != "node1\n1" {
		t.Errorf("not in the node's network: %q", got)
	}
}

// onNode puts a Pod into the node's network, as a DaemonSet's.
func onNode(c *runtimeapi.PodSandboxConfig) {
	c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	c.Hostname = "node1"
}

func TestPodShares(t *testing.T) {
	n := startNode(t, testCIDRs)
	p := n.pod("pair")
	a, b := p.container(shell(idle)), p.container(shell(idle))
	kinds := "for k in net uts ipc pid mnt; do readlink /proc/self/ns/$k; done"
	left, right := strings.Fields(a.sh(kinds)), strings.Fields(b.sh(kinds))
	for i, shared := range []bool{true, true, true, false, false} {
		if (left[i] == right[i]) != shared {
			t.Errorf("%s and %s: shared should be %v", left[i], right[i], shared)
		}
	}
	a.sh("echo hi > /dev/shm/note")
	if got := b.sh("cat /dev/shm/note"); got != "hi" {
		t.Errorf("/dev/shm: %q", got)
	}
	other := strings.Fields(n.pod("other").container(shell(idle)).sh(kinds))
	for i := range other {
		if other[i] == left[i] {
			t.Errorf("%s is shared between Pods", other[i])
		}
	}
}

func TestSharedProcesses(t *testing.T) {
	share := func(c *runtimeapi.NamespaceOption) { c.Pid = runtimeapi.NamespaceMode_POD }
	p := startNode(t, testCIDRs).pod("pair", func(c *runtimeapi.PodSandboxConfig) {
		share(c.Linux.SecurityContext.NamespaceOptions)
	})
	config := shell(idle)
	share(security(config).NamespaceOptions)
	a := p.container(config)
	b := p.container(config)
	if got := b.sh("ps axo args | grep -c '[t]rap'"); got != "2" {
		t.Errorf("%s containers in sight", got)
	}
	// An orphan is reaped by the sandbox's process.
	a.sh("(sleep 0.1 &) ; sleep 0.5; ! ps axo stat | grep -q Z")
	if got := a.sh("test $$ -gt 1 && tr '\\0' ' ' < /proc/1/cmdline | grep -c cinit"); got != "1" {
		t.Errorf("process 1 is not the sandbox's: %q", got)
	}
	start := time.Now()
	p.remove()
	if time.Since(start) > 3*time.Second {
		t.Errorf("removal took %v", time.Since(start))
	}
}

func TestNodeProcesses(t *testing.T) {
	node := func(c *runtimeapi.NamespaceOption) {
		c.Pid, c.Ipc = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
	}
	p := startNode(t, testCIDRs).pod("agent", func(c *runtimeapi.PodSandboxConfig) {
		node(c.Linux.SecurityContext.NamespaceOptions)
	})
	config := shell(idle)
	node(security(config).NamespaceOptions)
	b := p.container(config)
	if got := b.sh("tr '\\0' ' ' < /proc/1/cmdline"); !strings.Contains(got, "cri.test") {
		t.Errorf("process 1 is not the node's: %q", got)
	}
	ipc, err := os.Readlink("/proc/self/ns/ipc")
	if got := b.sh("readlink /proc/self/ns/ipc"); err != nil || got != ipc {
		t.Errorf("IPC namespace %s, the node's is %s (%v)", got, ipc, err)
	}
	b.sh("sleep 600 & setsid sleep 600 &")
	p.remove()
	if got := childCount(t); got != 0 {
		t.Errorf("%d processes left", got)
	}
}

func TestVolumes(t *testing.T) {
	n := startNode(t, testCIDRs)
	dir := filepath.Join(n.dir, "vol")
	config := shell(idle)
	if err := os.MkdirAll(filepath.Join(dir, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("1.2.3.4 here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/data/inner/new", HostPath: filepath.Join(dir, "made", "at", "start")},
		{ContainerPath: "/data", HostPath: filepath.Join(dir, "conf"), Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		{ContainerPath: "/etc/hosts", HostPath: hosts},
		{ContainerPath: "/var/run/secrets/token", HostPath: dir, Readonly: true},
		{ContainerPath: "/dev/termination-log", HostPath: hosts},
	}
	b := n.pod("web").container(config)
	got := b.sh("cat /etc/hosts; cat /run/secrets/token/hosts; echo x > /data/file; echo y > /data/inner/new/f; touch /run/secrets/token/x 2>&1 | grep -o Read-only")
	if got != "1.2.3.4 here\n1.2.3.4 here\nRead-only" {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"conf/file", "made/at/start/f"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	mountTmpfs(t, filepath.Join(dir, "conf", "late"))
	if got := b.sh("stat -f -c %T /data/late"); got != "tmpfs" {
		t.Errorf("a later mount of the node: %s", got)
	}
}

func TestBareImage(t *testing.T) {
	config := shell("")
	config.Command, config.Image.Image = nil, "registry.k8s.io/pause:3.10"
	b := startNode(t, testCIDRs).pod("web").container(config)
	_, err := b.run.ExecSync(b.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: b.id, Cmd: []string{"sh"}})
	if err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("sh in pause: %v", err)
	}
	if who := b.status().User.Linux; who.Uid != 65535 || !slices.Equal(who.SupplementalGroups, []int64{65535}) {
		t.Errorf("pause runs as %v", who)
	}
	waitHandles(t, "/pause", unix.SIGTERM)
	if _, err := b.run.StopContainer(b.ctx(), &runtimeapi.StopContainerRequest{ContainerId: b.id, Timeout: 5}); err != nil {
		t.Fatal(err)
	}
	if st := b.ended(); st.ExitCode != 0 {
		t.Errorf("pause after SIGTERM: %v", st)
	}
}

// waitHandles waits until the process of that command line handles a signal: process 1 of
// a namespace ignores one that comes before.
func waitHandles(t *testing.T, command string, sig unix.Signal) {
	t.Helper()
	for range 500 {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if raw, _ := os.ReadFile(line); strings.TrimRight(string(raw), "\x00") != command {
				continue
			}
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(line), "status"))
			_, rest, _ := strings.Cut(string(status), "SigCgt:\t")
			caught, _, _ := strings.Cut(rest, "\n")
			if bits, err := strconv.ParseUint(caught, 16, 64); err == nil && bits&(1<<(sig-1)) != 0 {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s never handled %s", command, sig)
}
