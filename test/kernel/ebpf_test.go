package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ebpfNodes remembers what belongs to each lab's node, so that a backend opened a second
// time finds the first one's maps.
type ebpfNodes struct {
	mu   sync.Mutex
	node map[*netlab.Host]kernel.EBPFOptions
}

// options makes a place for a node's maps and a cgroup for its processes, once.
func (n *ebpfNodes) options(t *testing.T, node *netlab.Host) kernel.EBPFOptions {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if o, ok := n.node[node]; ok {
		return o
	}
	bpffs := t.TempDir()
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		t.Fatalf("mount a file system of type bpf: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(bpffs, unix.MNT_DETACH) })
	cgroup, err := netlab.NewCgroup()
	if err != nil {
		t.Fatal(err)
	}
	node.Cgroup = cgroup
	t.Cleanup(func() {
		if err := cgroup.Close(); err != nil {
			t.Error(err)
		}
	})
	o := kernel.EBPFOptions{NetNS: node.NS(), Dir: filepath.Join(bpffs, "node"), Cgroup: cgroup.Dir, Flows: 16384}
	if n.node == nil {
		n.node = map[*netlab.Host]kernel.EBPFOptions{}
	}
	n.node[node] = o
	return o
}

// ebpfMode is the mode with the node's own sockets in its cgroup. Pods' sockets are not:
// all they send is translated at the node's interfaces.
func ebpfMode(nodes *ebpfNodes) mode {
	return mode{
		name:     "ebpf",
		settings: func(c *proxy.Config) { *c = c.WithMode(proxy.EBPF) },
		open: func(t *testing.T, node *netlab.Host) loop.Backend {
			return loop.NewEBPF(kernel.NewEBPF(nodes.options(t, node)))
		},
		list: func(t *testing.T, node *netlab.Host) string { return ebpfList(t, nodes.options(t, node)) },
	}
}

// ebpfList is the elements of the maps, what hangs at the interfaces, and the pins.
func ebpfList(t *testing.T, o kernel.EBPFOptions) string {
	t.Helper()
	var lines []string
	pins, err := os.ReadDir(o.Dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, p := range pins {
		lines = append(lines, "pin "+p.Name())
	}
	if len(pins) > 0 {
		p, err := kernel.NewEBPF(o).List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Entries() {
			lines = append(lines, e.String())
		}
	}
	slices.Sort(lines)
	lines = append(lines, filters(t, o.NetNS)...)
	if len(lines) == 0 {
		return ""
	}
	return fmt.Sprintln(strings.Join(lines, "\n"))
}

func filters(t *testing.T, ns int) []string {
	t.Helper()
	nl, err := netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range links {
		qdiscs, err := nl.QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				lines = append(lines, l.Attrs().Name+" clsact")
			}
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			list, _ := nl.FilterList(l, parent)
			for _, f := range list {
				if b, ok := f.(*netlink.BpfFilter); ok {
					lines = append(lines, fmt.Sprintf("%s %s %d", l.Attrs().Name, b.Name, b.Priority))
				}
			}
		}
	}
	return lines
}

func TestEBPFStories(t *testing.T) { runStories(t, ebpfMode(&ebpfNodes{})) }

// TestEBPFSocketStories is the stories again with every local pod's sockets led to their
// endpoints at connect: the oracle knows them by OnNode.
func TestEBPFSocketStories(t *testing.T) { runStories(t, ebpfSocketMode()) }

func ebpfSocketMode() mode {
	nodes := &ebpfNodes{}
	m := ebpfMode(nodes)
	m.prepare = func(t *testing.T, lab *netlab.Lab, packets []packet.Packet) {
		nodes.options(t, lab.Node)
		for _, pod := range lab.Pods {
			pod.Cgroup = lab.Node.Cgroup
		}
		for i, p := range packets {
			packets[i].OnNode = p.Local || slices.Contains(lab.Pods, lab.Host(p.Src))
		}
	}
	return m
}

func TestEBPFRandomPackets(t *testing.T)       { runRandom(t, ebpfMode(&ebpfNodes{}), 5) }
func TestEBPFSocketRandomPackets(t *testing.T) { runRandom(t, ebpfSocketMode(), 5) }
