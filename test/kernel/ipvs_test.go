package kernel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/ipvs"
	"fairway/test/netlab"
	"fairway/test/random"
	"fairway/test/story"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// requireIPVS asks the kernel. `make test-ipvs` runs these tests in a virtual machine
// whose kernel has IPVS, and there nothing may be skipped.
func requireIPVS(t *testing.T) {
	t.Helper()
	requireKernel(t)
	err := netlab.MissingIPVS()
	switch {
	case err == nil:
	case os.Getenv("FAIRWAY_REQUIRE_IPVS") == "1":
		t.Fatalf("FAIRWAY_REQUIRE_IPVS=1, but %v", err)
	default:
		t.Skipf("%v (make test-ipvs runs these in a virtual machine)", err)
	}
}

func ipvsMode() mode {
	return mode{
		name:     "ipvs",
		settings: func(c *proxy.Config) { *c = c.WithMode(proxy.IPVS) },
		open: func(t *testing.T, node *netlab.Host) loop.Backend {
			t.Helper()
			b, problems, err := loop.OpenIPVS(context.Background(), node.NS(), "node1", kernel.AnyVariant)
			if err != nil || len(problems) > 0 {
				t.Fatalf("open: %v %v", err, problems)
			}
			return b
		},
		list: ipvsList,
	}
}

// ipvsList is what the kernel has of ours, as the node's tools list it.
func ipvsList(t *testing.T, node *netlab.Host) string {
	t.Helper()
	var lines []string
	tool := func(keep string, args ...string) {
		var out []byte
		err := node.Do(func() (err error) {
			out, err = exec.Command(args[0], args[1:]...).Output()
			return err
		})
		if err != nil && args[0] != "ip" { // without the device
			t.Fatalf("%v: %v", args, err)
		}
		for _, l := range strings.Split(string(out), "\n") {
			if f := strings.Fields(l); strings.Contains(l, keep) && len(f) > 0 {
				if f[0] == "create" {
					f = f[:3]
				}
				lines = append(lines, strings.Join(append(args[:1:1], f...), " "))
			}
		}
	}
	tool("KUBE-", "iptables-save")
	tool("KUBE-", "ip6tables-save")
	tool("KUBE-", "ipset", "save")
	tool("inet", "ip", "addr", "show", "dev", ipvs.Device)
	tool("-", "ipvsadm", "-S", "-n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestIPVSStories(t *testing.T) {
	requireIPVS(t)
	runStories(t, ipvsMode())
}

func TestIPVSRandomPackets(t *testing.T) {
	requireIPVS(t)
	runRandom(t, ipvsMode(), 4)
}

// TestIPVSRandomChanges: the kernel takes any Change, and lists what was meant.
func TestIPVSRandomChanges(t *testing.T) {
	requireIPVS(t)
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 13))
		lab, err := netlab.New(netlab.Layout{})
		if err != nil {
			t.Fatal(err)
		}
		b := ipvsMode().open(t, lab.Node)
		hand := kernel.LookIPVS(context.Background(), lab.Node.NS())
		cfg, objects := random.Settings(r).WithMode(proxy.IPVS), random.Cluster(r)
		var snap *model.Snapshot
		var plan *proxy.Plan
		for step := range 10 {
			if r.IntN(5) == 0 {
				cfg = random.Settings(r).WithMode(proxy.IPVS)
				cfg.Scheduler = proxy.IPVS.Traits().Schedulers[r.IntN(11)]
			}
			objects = random.Change(r, objects)
			snap, _ = model.Build(snap, objects)
			plan, _ = proxy.New(plan, snap, cfg)
			apply(t, b, plan)
			hand.Close()
			hand = kernel.LookIPVS(context.Background(), lab.Node.NS())
			for _, v6 := range []bool{false, true} {
				have, err := hand.List(context.Background(), v6)
				if err != nil {
					t.Fatal(err)
				}
				if d := ipvs.Drift(have, ipvs.Compile(nil, plan), ipvs.Draining{}); len(d) > 0 {
					t.Fatalf("seed %d step %d: the kernel differs:\n%s", seed, step, strings.Join(d, "\n"))
				}
			}
		}
		hand.Close()
		lab.Close()
	}
}

// TestIPVSPing: a cluster address answers a ping in this mode, being the node's own.
func TestIPVSPing(t *testing.T) {
	requireIPVS(t)
	s := story.Load(t, "testdata/mixed.txtar")
	m := ipvsMode()
	m.settings(&s.Config)
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	if pinged(t, lab, plan.Ports[0].ClusterIP) {
		t.Fatal("answered before there were any rules")
	}
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	for _, sp := range plan.Ports {
		if !pinged(t, lab, sp.ClusterIP) {
			t.Errorf("%s does not answer", sp.ClusterIP)
		}
	}
}

func pinged(t *testing.T, lab *netlab.Lab, to netip.Addr) bool {
	t.Helper()
	var conn *icmp.PacketConn
	if err := lab.Clients.Do(func() (err error) {
		conn, err = icmp.ListenPacket("ip4:icmp", "203.0.113.2")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	msg, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1}}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteTo(msg, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 256)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return false
		}
		m, err := icmp.ParseMessage(1, buf[:n])
		if err == nil && m.Type == ipv4.ICMPTypeEchoReply && from.String() == to.String() {
			return true
		}
	}
}

// send sends one TCP connect from a client outside.
func send(t *testing.T, lab *netlab.Lab, src, dst string) netlab.Observation {
	t.Helper()
	p := packet.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddrPort(dst), Proto: packet.TCP}
	o, err := lab.Send(p, answer)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestIPVSMissing: where the kernel has no IPVS, the error says exactly what it lacks.
func TestIPVSMissing(t *testing.T) {
	requireKernel(t)
	err := netlab.MissingIPVS()
	if err == nil {
		t.Skip("this kernel has it all")
	}
	lab, labErr := netlab.New(netlab.Layout{})
	if labErr != nil {
		t.Fatal(labErr)
	}
	defer lab.Close()
	_, _, err = loop.OpenIPVS(context.Background(), lab.Node.NS(), "node1", kernel.AnyVariant)
	if !errors.Is(err, kernel.ErrNoIPVS) || !strings.Contains(err.Error(), "module ip_vs)") && !strings.Contains(err.Error(), "module dummy)") {
		t.Errorf("%v", err)
	}
	t.Log(err)
	if err := loop.RemoveIPVS(context.Background(), lab.Node.NS()); err != nil {
		t.Errorf("removing what never was there: %v", err)
	}
}
