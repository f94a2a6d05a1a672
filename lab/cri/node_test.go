package cri

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairway/lab/images"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// node is a served runtime and a client of it.
type node struct {
	t      testing.TB
	run    runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	conn   *grpc.ClientConn
	dir    string
	stop   func()
}

// startNode serves a runtime with the given Pod CIDRs ("" for none yet).
func startNode(t testing.TB, cidrs string) *node {
	t.Helper()
	needNode(t)
	return startNodeIn(t, t.TempDir(), cidrs)
}

func startNodeIn(t testing.TB, dir, cidrs string) *node {
	t.Helper()
	cfg, err := testConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, cfg) }()
	n := newClient(t, dir, cidrs)
	n.stop = sync.OnceFunc(func() {
		n.conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

func testConfig(dir string) (Config, error) {
	imageMap, err := images.LoadWith(filepath.Join(dir, "images.yaml"), dir)
	return Config{
		Socket: filepath.Join(dir, "cri.sock"), StateDir: filepath.Join(dir, "state"), Node: "node1",
		NodeIPs: []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:30::11")},
		Images:  imageMap, Cinit: os.Getenv(insideEnv),
	}, err
}

// newClient connects to the runtime that serves in dir, once it does, and gives it its Pod CIDRs.
func newClient(t testing.TB, dir, cidrs string) *node {
	t.Helper()
	socket := filepath.Join(dir, "cri.sock")
	// A client that comes too early waits a second before it tries again.
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	n := &node{
		t: t, dir: dir, conn: conn,
		run: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn),
	}
	if cidrs == "" {
		return n
	}
	_, err = n.run.UpdateRuntimeConfig(n.ctx(), &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}},
	}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	n.t.Cleanup(cancel)
	return ctx
}

// pod is a sandbox under test.
type pod struct {
	*node
	id     string
	config *runtimeapi.PodSandboxConfig
}

func (n *node) pod(name string, change ...func(*runtimeapi.PodSandboxConfig)) *pod {
	n.t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Hostname: name, LogDirectory: filepath.Join(n.dir, "logs", name),
		DnsConfig: &runtimeapi.DNSConfig{
			Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local"}, Options: []string{"ndots:5"},
		},
		Labels: map[string]string{"app": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
	for _, f := range change {
		f(config)
	}
	resp, err := n.run.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		n.t.Fatalf("run pod %s: %v", name, err)
	}
	return &pod{n, resp.PodSandboxId, config}
}

// box is a container under test.
type box struct {
	*pod
	id string
}

// shell is the configuration of a container that runs a shell script.
func shell(script string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: "busybox:1.36"},
		Command:  []string{"sh", "-c", script},
		LogPath:  "main/0.log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			MaskedPaths:      []string{"/proc/kcore", "/proc/keys"},
			ReadonlyPaths:    []string{"/proc/sys", "/proc/sysrq-trigger"},
		}},
	}
}

const idle = "trap 'exit 0' TERM; while :; do sleep 0.1; done"

func (p *pod) container(config *runtimeapi.ContainerConfig) *box {
	p.t.Helper()
	b, err := p.tryContainer(config)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *pod) tryContainer(config *runtimeapi.ContainerConfig) (*box, error) {
	resp, err := p.run.CreateContainer(p.ctx(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: config, SandboxConfig: p.config,
	})
	if err != nil {
		return nil, err
	}
	_, err = p.run.StartContainer(p.ctx(), &runtimeapi.StartContainerRequest{ContainerId: resp.ContainerId})
	return &box{p, resp.ContainerId}, err
}

func (b *box) status() *runtimeapi.ContainerStatus {
	b.t.Helper()
	resp, err := b.run.ContainerStatus(b.ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: b.id})
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.Status
}

// ended waits for the container's end.
func (b *box) ended() *runtimeapi.ContainerStatus {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if st := b.status(); st.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			return st
		}
	}
	b.t.Fatal("container still runs after 20 s")
	return nil
}

// output is what the log holds, without the time stamps: "stdout F text".
func (b *box) output() string {
	b.t.Helper()
	text, err := os.ReadFile(b.status().LogPath)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(line, " ")
		out = append(out, strings.TrimSuffix(rest, "\n"))
	}
	return strings.Join(out, "\n")
}

// waitOutput waits for a line in the log.
func (b *box) waitOutput(line string) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(b.output(), line) {
			return
		}
	}
	b.t.Fatalf("no %q in the log after 10 s:\n%s", line, b.output())
}

// sh runs a script in the container and returns its output; a failure of the script is one of the test.
func (b *box) sh(script string) string {
	b.t.Helper()
	resp, err := b.run.ExecSync(b.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: b.id, Cmd: []string{"sh", "-c", script}})
	if err != nil {
		b.t.Fatalf("exec %q: %v", script, err)
	}
	if resp.ExitCode != 0 {
		b.t.Fatalf("exec %q: exit code %d\n%s%s", script, resp.ExitCode, resp.Stdout, resp.Stderr)
	}
	return strings.TrimSpace(string(resp.Stdout))
}

func (p *pod) remove() {
	p.t.Helper()
	if _, err := p.run.StopPodSandbox(p.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.run.RemovePodSandbox(p.ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Fatal(err)
	}
}
