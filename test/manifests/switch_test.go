package manifests

import (
	"context"
	"fmt"
	"io/fs"
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
)

// traces are what tells that a mode's rules are in the kernel.
func traces() map[string]string {
	return map[string]string{"nftables": "table ip fairway {", "iptables": "KUBE-SVC-", "userspace": "fairway-userspace", "ebpf": "pinned "}
}

// rules is everything in the kernel's tables of the namespace it runs in, and what is
// pinned.
func (m *machine) rules() string {
	var all strings.Builder
	for _, args := range [][]string{{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}} {
		out, _ := exec.Command(args[0], args[1:]...).CombinedOutput()
		all.Write(out)
	}
	root := filepath.Join(m.home, "bpf")
	filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != root && !strings.HasSuffix(path, ".debug") { // the file system's own
			fmt.Fprintln(&all, "pinned", strings.TrimPrefix(path, root))
		}
		return nil
	})
	return all.String()
}

// TestSwitch: from each mode to each other one, with the old one killed, no connection
// fails, a UDP client that keeps its port is served on, and the old one's rules are gone
// once the new one's are there.
func TestSwitch(t *testing.T) {
	for _, from := range allModes() {
		for _, to := range allModes() {
			if from != to {
				t.Run(from+"-"+to, func(t *testing.T) { switchStory(t, from, to) })
			}
		}
	}
}

func switchStory(t *testing.T, from, to string) {
	m := newMachine(t)
	m.write("steady.yaml", service("steady", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr(), podB.Addr()))
	talk := netip.AddrPortFrom(podA.Addr(), 5353)
	if err := m.lab.Serve(packet.UDP, talk); err != nil {
		t.Fatal(err)
	}
	m.write("talk.yaml", service("talk", "10.96.0.53", "UDP", 53, 30053, 5353, podA.Addr()))
	m.config = "roles: [proxy]\n"
	m.start(from)
	nodePort := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}
	m.reachesOne(nodePort)
	inside, outside := m.lab.Host(podB.Addr()).Talk(t, 6, "10.96.0.53:53"), m.lab.Host(client).Talk(t, 6, node.String()+":30053")
	inside.Until("before", talk.String())
	outside.Until("before", talk.String())
	ctx, cancel := context.WithCancel(context.Background())
	var s steady
	var clients sync.WaitGroup
	clients.Go(func() {
		if err := s.run(ctx, m.lab.Host(client), client, node.String()+":30080"); err != nil {
			t.Error(err)
		}
	})
	m.stop(syscall.SIGKILL)
	m.start(to)
	m.run("^"+to+"$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/proxyMode")
	m.run("^ok$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/readyz")
	m.gone(from)
	inside.Until("after the switch", talk.String())
	outside.Until("after the switch", talk.String())
	cancel()
	clients.Wait()
	m.reachesOne(nodePort)
	if !slices.Contains(modes(), from) { // in mode userspace it is the process itself that forwards: until the next one does, nobody does
		return
	}
	if s.failures.Load() > 0 || s.dials.Load() < 20 {
		t.Errorf("%d of %d connections failed, first: %v", s.failures.Load(), s.dials.Load(), s.first)
	}
}

// gone waits until a mode's rules are.
func (m *machine) gone(mode string) {
	m.t.Helper()
	var last string
	for range 100 {
		m.lab.Node.Do(func() error { last = m.rules(); return nil })
		if !strings.Contains(last, traces()[mode]) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	m.t.Fatalf("rules of mode %s are still there:\n%s", mode, last)
}

// TestCleanupAsBefore: after cleanup the node is as it was before the first start.
func TestCleanupAsBefore(t *testing.T) {
	for _, mode := range allModes() {
		t.Run(mode, func(t *testing.T) {
			m := newMachine(t)
			m.write("a.yaml", service("web", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr()))
			m.config = "roles: [proxy]\nproxy: {conntrack: {tcpCloseWaitTimeout: 30m, udpTimeout: 40s}}\n"
			before := m.state()
			m.start(mode)
			m.reaches(packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}, podA)
			m.run(`^1800\s$`, "cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait")
			m.run(`^40\s$`, "cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout")
			m.stop(syscall.SIGKILL)
			m.run("(?s)nftables: nothing.*iptables: nothing", m.bin, "cleanup")
			for i, now := range m.state() {
				if now != before[i] {
					t.Errorf("not as before:\n%s\nnow\n%s", before[i], now)
				}
			}
		})
	}
}

// state is what can be seen of the node's network, part by part.
func (m *machine) state() []string {
	m.t.Helper()
	var out []string
	err := m.lab.Node.Do(func() error {
		out = []string{m.rules(), settings()}
		for _, args := range [][]string{{"ip", "-o", "addr"}, {"ip", "-o", "link"}, {"ip", "rule"}, {"ip", "route", "show", "table", "all"}} {
			text, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w: %s", args, err, text)
			}
			out = append(out, regexp.MustCompile(`(valid|preferred)_lft \S+`).ReplaceAllString(string(text), ""))
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// settings are the network's, less those that count.
func settings() string {
	var out strings.Builder
	root := "/proc/thread-self/root/proc/sys/net"
	filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, "nf_conntrack_count") || strings.Contains(path, "stable_secret") {
			return nil
		}
		if data, err := os.ReadFile(path); err == nil {
			fmt.Fprintf(&out, "%s = %s\n", strings.TrimPrefix(path, root), strings.TrimSpace(string(data)))
		}
		return nil
	})
	return out.String()
}

// TestKubeProxyTakenOver: what a kube-proxy left in the kernel goes once the rules are in
// force, in whichever of its modes and of iptables' programs it ran.
func TestKubeProxyTakenOver(t *testing.T) {
	m := newMachine(t)
	m.write("a.yaml", service("web", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr()))
	m.config = "roles: [proxy]\n"
	left := `nft add table ip kube-proxy
nft add chain ip kube-proxy services
nft add table ip6 kube-proxy
nft add table ip somebody
for v in legacy nft; do
iptables-$v -t nat -N KUBE-SERVICES
iptables-$v -t nat -A PREROUTING -j KUBE-SERVICES
iptables-$v -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA
iptables-$v -t nat -A KUBE-SERVICES -d 10.96.0.80/32 -j KUBE-SVC-AAAAAAAAAAAAAAAA
iptables-$v -t nat -N OTHERS
done`
	m.run("^$", "sh", "-ec", left)
	m.start("nftables")
	m.reaches(packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}, podA)
	m.gone("iptables")
	for range 50 {
		var all string
		m.lab.Node.Do(func() error { all = m.rules(); return nil })
		if !strings.Contains(all, "kube-proxy {") && !strings.Contains(all, "KUBE-") && strings.Count(all, "OTHERS") >= 2 && strings.Contains(all, "table ip somebody") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	m.lab.Node.Do(func() error { t.Errorf("left of kube-proxy, or taken from others:\n%s", m.rules()); return nil })
}
