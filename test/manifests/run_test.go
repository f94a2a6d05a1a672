// Package manifests runs the built program as on a plain machine: a directory of
// manifests in, traffic, names and routes out, in network namespaces with real packets.
package manifests

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairway/packet"
	"fairway/test/netlab"

	"golang.org/x/sys/unix"
)

const objects = `
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {type: NodePort, clusterIP: 10.96.0.80, ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%s]}]
---
apiVersion: v1
kind: Service
metadata: {name: pooled}
spec: {type: LoadBalancer, clusterIP: 10.96.0.81, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: pooled-1, labels: {kubernetes.io/service-name: pooled}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.5]}]
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: pool}
spec: {addresses: [198.51.100.10-198.51.100.20]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairway, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: fairway.io/ingress}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  rules:
  - host: shop.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: absent, port: {number: 80}}}}]}
`

var (
	node   = netip.MustParseAddr("172.30.0.11")
	client = netip.MustParseAddr("203.0.113.2")
	podA   = netip.MustParseAddrPort("10.244.1.5:8080")
	podB   = netip.MustParseAddrPort("10.244.1.6:8080")
)

// machine is the node's namespace with the program in it.
type machine struct {
	t   *testing.T
	lab *netlab.Lab
	bin string
	dir string // of the manifests
	// home holds the configuration and the state.
	home string
	// config is added to the program's configuration file; whole, if any, is all of it.
	config, whole string
	env           []string // a command in front of the program's
	cgroup        string
	cmd           *exec.Cmd
	log           logged
}

// logged is what the program says, to be read while it goes on.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestMain builds the program one time.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fairway")
	if err == nil {
		bin := filepath.Join(dir, "fairway")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", bin, "fairway/cmd/fairway").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		os.Setenv("FAIRWAY_BIN", bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func newMachine(t *testing.T) *machine {
	if err := netlab.Missing(); err != nil {
		if os.Getenv("FAIRWAY_REQUIRE_KERNEL") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	m := &machine{t: t, dir: t.TempDir(), home: t.TempDir(), bin: os.Getenv("FAIRWAY_BIN")}
	lab, err := netlab.New(netlab.Layout{
		NodeAddrs: []netip.Addr{node}, Clients: []netip.Addr{client},
		Pods: []netlab.Pod{{Addrs: []netip.Addr{podA.Addr()}}, {Addrs: []netip.Addr{podB.Addr()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Close)
	m.lab = lab
	m.ownPlaces()
	for _, a := range []netip.AddrPort{podA, podB} {
		if err := lab.Serve(packet.TCP, a); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// ownPlaces gives the machine what of the file system is to be its own: the notes of what
// settings were, pinned BPF objects, and the cgroup its processes are in, without which
// the eBPF mode would take the sockets of everybody here for the node's.
func (m *machine) ownPlaces() {
	m.t.Helper()
	for _, dir := range []string{"run/cgroup", "bpf"} {
		if err := os.MkdirAll(filepath.Join(m.home, dir), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/fairway", 0o755); err != nil { // to mount on
		m.t.Fatal(err)
	}
	bpf := filepath.Join(m.home, "bpf")
	if err := unix.Mount("bpf", bpf, "bpf", 0, ""); err != nil {
		m.t.Fatalf("mount a file system of type bpf: %v", err)
	}
	m.t.Cleanup(func() { unix.Unmount(bpf, unix.MNT_DETACH) })
	cgroup, err := netlab.NewCgroup()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { cgroup.Close() })
	m.cgroup, m.lab.Node.Cgroup = cgroup.Dir, cgroup
}

// at is a command line for the machine: one that sees its places.
func (m *machine) at(args ...string) *exec.Cmd {
	const mounts = `mount --bind "$1/run" /run/fairway && mount --bind "$2" /run/fairway/cgroup && mount --bind "$1/bpf" /sys/fs/bpf && shift 2 && exec "$@"`
	return exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", mounts, "sh", m.home, m.cgroup}, args...)...)
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// writeConfig writes the program's configuration file.
func (m *machine) writeConfig() {
	m.t.Helper()
	text := m.whole
	if text == "" {
		text = fmt.Sprintf("%sloadBalancer: {stateFile: %s}\n", m.config, filepath.Join(m.home, "addresses.json"))
	}
	if err := os.WriteFile(m.configFile(), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) start(mode string, flags ...string) {
	m.t.Helper()
	if mode != "" {
		flags = append([]string{"--proxy-mode", mode}, flags...)
	}
	m.startWith(append([]string{"--manifests", m.dir}, flags...)...)
}

// startWith starts the program with its configuration, this node's name, and flags.
func (m *machine) startWith(flags ...string) {
	m.t.Helper()
	m.writeConfig()
	args := []string{m.bin, "run", "--config", m.configFile(), "--node", "node1"}
	m.cmd = m.at(slices.Concat(m.env, args, flags)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	// The children of a thread are born in its namespace.
	if err := m.lab.Node.Do(m.cmd.Start); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		m.cmd.Process.Kill()
		m.cmd.Wait()
		if m.t.Failed() {
			m.t.Logf("log of the program:\n%s", m.log.String())
		}
	})
}

func (m *machine) configFile() string { return filepath.Join(m.home, "fairway.yaml") }

func (m *machine) stop(sig syscall.Signal) {
	m.t.Helper()
	m.cmd.Process.Signal(sig)
	if err := m.cmd.Wait(); sig == syscall.SIGTERM && err != nil {
		m.t.Fatalf("after SIGTERM: %v", err)
	}
}

// reaches waits until a packet gets to want.
func (m *machine) reaches(p packet.Packet, want netip.AddrPort) {
	m.t.Helper()
	var last string
	for range 100 {
		o, err := m.lab.Send(p, 300*time.Millisecond)
		if err == nil && o.Endpoint == want {
			return
		}
		last = fmt.Sprint(o, err)
		time.Sleep(100 * time.Millisecond)
	}
	m.t.Fatalf("%s does not reach %s: %s", p, want, last)
}

// run runs a command in the node's namespace until its output matches.
func (m *machine) run(match string, args ...string) {
	m.t.Helper()
	re := regexp.MustCompile(match)
	var out []byte
	for range 50 {
		m.lab.Node.Do(func() error {
			out, _ = m.at(args...).CombinedOutput()
			return nil
		})
		if re.Match(out) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	m.t.Fatalf("%s: no match of %s in\n%s", strings.Join(args, " "), match, out)
}

func TestRunManifests(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) { manifestsStory(t, mode) })
	}
}

func manifestsStory(t *testing.T, mode string) {
	m := newMachine(t)
	m.write("a.yaml", fmt.Sprintf(objects, podA.Addr()))
	m.start(mode)
	nodePort := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}
	vip := packet.Packet{Proto: packet.TCP, Src: podB.Addr(), Dst: netip.MustParseAddrPort("10.96.0.80:80")}
	m.reaches(nodePort, podA)
	m.reaches(vip, podA)
	// An address from the pool is programmed though nobody keeps a status.
	m.reaches(packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.MustParseAddrPort("198.51.100.10:80")}, podA)
	m.run(`10\.96\.0\.80`, "dig", "@127.0.0.1", "-p", "10053", "+short", "+tries=1", "+time=1", "shop.default.svc.cluster.local")
	m.run("503", "curl", "-s", "-m", "2", "-H", "Host: shop.example.com", "http://127.0.0.1/")
	m.run("^"+mode+"$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/proxyMode")
	m.run("^ok$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/readyz")

	// A change, then a broken file beside it: the last good state stays.
	m.write("a.yaml", fmt.Sprintf(objects, podB.Addr()))
	m.reaches(nodePort, podB)
	m.write("broken.yaml", "this: is: no: yaml")
	m.write("a.yaml", "half: a: docu")
	time.Sleep(500 * time.Millisecond)
	m.reaches(nodePort, podB)

	// Killed, the rules go on; started again, nothing changes; stopped, they stay.
	m.write("a.yaml", fmt.Sprintf(objects, podB.Addr()))
	os.Remove(filepath.Join(m.dir, "broken.yaml"))
	m.stop(syscall.SIGKILL)
	m.reaches(nodePort, podB)
	// A Service that sorts before it gets another address: the one held stays.
	m.write("b.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: earlier}\nspec: {type: LoadBalancer, clusterIP: 10.96.0.82, ports: [{port: 80}]}\n")
	m.start(mode)
	m.run(`10\.96\.0\.80`, "dig", "@127.0.0.1", "-p", "10053", "+short", "+tries=1", "+time=1", "shop.default.svc.cluster.local")
	m.reaches(nodePort, podB)
	m.reaches(packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.MustParseAddrPort("198.51.100.10:80")}, podA)
	m.stop(syscall.SIGTERM)
	m.reaches(vip, podB)

	m.run("nothing of ours is left", m.bin, "cleanup")
	if o, err := m.lab.Send(nodePort, 300*time.Millisecond); err != nil || o.Reached() {
		t.Fatalf("after cleanup the node port still answers: %v %v", o, err)
	}
	m.run(`^(?:table ip6? (?:nat|filter|mangle) \{\s*(?:chain (?:PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) \{[^}]*policy accept;\s*\}\s*)*\}\s*)*$`, "nft", "list", "ruleset")
}
