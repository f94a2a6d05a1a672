package kernel_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/test/netlab"
	"fairway/test/story"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestEBPFDrift: what somebody changes behind our back is found by the audit, said in
// plain words, and put right.
func TestEBPFDrift(t *testing.T) {
	requireKernel(t)
	nodes := &ebpfNodes{}
	m := ebpfMode(nodes)
	s := story.Load(t, "testdata/mixed.txtar")
	m.settings(&s.Config)
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b := m.open(t, lab.Node)
	o := nodes.options(t, lab.Node)
	apply(t, b, plan)
	good := m.list(t, lab.Node)
	if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Fatalf("audit of an untouched kernel: %v %q", err, lines)
	}
	for name, damage := range map[string]func(){
		"a frontend deleted": func() { firstElement(t, o, "frontends", func(m *ebpf.Map, k []byte) error { return m.Delete(k) }) },
		"a pool changed": func() {
			firstElement(t, o, "pools", func(m *ebpf.Map, k []byte) error { return m.Put(k, make([]byte, m.ValueSize())) })
		},
		"the settings zeroed": func() {
			firstElement(t, o, "settings", func(m *ebpf.Map, k []byte) error { return m.Put(k, make([]byte, m.ValueSize())) })
		},
		"a vip added": func() {
			firstElement(t, o, "vips", func(m *ebpf.Map, k []byte) error { return m.Put(make([]byte, 16), []byte{1, 0, 0, 0}) })
		},
		"the filters of an interface removed": func() { clearLink(t, lab.Node, "client") },
		"a program taken off the cgroup": func() {
			if err := os.Remove(filepath.Join(o.Dir, "link_fw_connect4")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		damage()
		lines, err := b.Audit(context.Background())
		if err != nil || len(lines) == 0 {
			t.Fatalf("%s: audit: %v, %d lines", name, err, len(lines))
		}
		if now := m.list(t, lab.Node); now != good {
			t.Fatalf("%s: not repaired by %s\n--- now\n%s--- before\n%s", name, strings.Join(lines, "\n"), now, good)
		}
		if lines, _ := b.Audit(context.Background()); len(lines) > 0 {
			t.Errorf("%s: the second audit finds %q", name, lines)
		}
	}
	sendAll(t, lab, plan, s.Packets)
}

// firstElement does something to the first element of a pinned map.
func firstElement(t *testing.T, o kernel.EBPFOptions, name string, do func(m *ebpf.Map, key []byte) error) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(o.Dir, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var key, value []byte
	if it := m.Iterate(); !it.Next(&key, &value) {
		t.Fatalf("map %s is empty: %v", name, it.Err())
	}
	if err := do(m, key); err != nil {
		t.Fatalf("map %s: %v", name, err)
	}
}

func clearLink(t *testing.T, node *netlab.Host, name string) {
	t.Helper()
	nl, err := netlink.NewHandleAt(netns.NsHandle(node.NS()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	l, err := nl.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	err = nl.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEBPFNoGap: while endpoints change many times, and the program starts anew as after a
// kill, no connect fails: neither of clients whose packets are translated nor of those
// whose sockets are.
func TestEBPFNoGap(t *testing.T) {
	requireKernel(t)
	for name, m := range map[string]mode{"packets": ebpfMode(&ebpfNodes{}), "sockets": ebpfSocketMode()} {
		t.Run(name, func(t *testing.T) { noGap(t, m, 60, 10, 2) })
	}
}

// TestEBPFNewInterface: an interface that appears while the program runs is served.
func TestEBPFNewInterface(t *testing.T) {
	requireKernel(t)
	nodes := &ebpfNodes{}
	m := ebpfMode(nodes)
	s := story.Load(t, "testdata/mixed.txtar")
	m.settings(&s.Config)
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go b.(*loop.EBPF).Watch(ctx, time.Hour, func(lines []string, err error) { t.Errorf("repaired %q %v", lines, err) })
	time.Sleep(100 * time.Millisecond)
	nl, err := netlink.NewHandleAt(netns.NsHandle(lab.Node.NS()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "late0"
	if err := nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "late1"}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		list := m.list(t, lab.Node)
		if strings.Contains(list, "late0 fairway/arrive") && strings.Contains(list, "late1 fairway/leave") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not attached:\n%s", list)
		}
	}
}
