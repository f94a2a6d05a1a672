package kernel_test

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"
	"fairway/test/story"
)

func eachVariant(t *testing.T, test func(t *testing.T, m mode, tool string)) {
	requireKernel(t)
	for _, v := range []kernel.Variant{kernel.NFTVariant, kernel.LegacyVariant} {
		t.Run(string(v), func(t *testing.T) { test(t, iptablesMode(v), "iptables-"+string(v)) })
	}
}

// mixed loads the story of all kinds with a mode's settings.
func mixed(t *testing.T, m mode) (*story.Story, *proxy.Plan, *netlab.Lab) {
	t.Helper()
	s := story.Load(t, "testdata/mixed.txtar")
	if m.settings != nil {
		m.settings(&s.Config)
	}
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	if m.prepare != nil {
		m.prepare(t, lab, s.Packets)
	}
	return s, plan, lab
}

func onNode(t *testing.T, node *netlab.Host, command string) {
	t.Helper()
	f := strings.Fields(command)
	err := node.Do(func() error {
		out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s", command, out)
		}
		return err
	})
	if err != nil {
		t.FailNow()
	}
}

// TestIPTablesDrift: what somebody changes behind our back is found by the audit, said
// in iptables' words, and put right.
func TestIPTablesDrift(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, tool string) {
		s, plan, lab := mixed(t, m)
		b := m.open(t, lab.Node)
		apply(t, b, plan)
		good := m.list(t, lab.Node)
		if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
			t.Fatalf("audit of an untouched kernel: %v %q", err, lines)
		}
		for _, damage := range []string{
			" -t nat -F KUBE-SERVICES", " -t nat -D KUBE-SERVICES 1", " -t nat -A KUBE-SERVICES -j RETURN",
			" -t nat -I KUBE-MARK-MASQ -p tcp -m multiport --dports 1,2 -j RETURN", " -t filter -F INPUT",
			" -t nat -N KUBE-SEP-AAAAAAAAAAAAAAAA", " -t filter -F KUBE-FORWARD", " -t mangle -X KUBE-PROXY-CANARY", " -t nat -F",
		} {
			onNode(t, lab.Node, tool+damage)
			lines, err := b.Audit(context.Background())
			if err != nil || len(lines) == 0 {
				t.Fatalf("%s: audit: %v, %d lines", damage, err, len(lines))
			}
			if now := m.list(t, lab.Node); now != good {
				t.Fatalf("%s: not repaired by %s\n--- now\n%s--- before\n%s", damage, strings.Join(lines, "\n"), now, good)
			}
		}
		sendAll(t, lab, plan, s.Packets[:2])
	})
}

// TestIPTablesCanary: a flush of the tables is noticed between audits.
func TestIPTablesCanary(t *testing.T) {
	for _, flush := range [][]string{{" -t nat -F", " -t nat -X"}, {" -t nat -F"}, {" -F"}} {
		eachVariant(t, func(t *testing.T, m mode, tool string) { watchRepairs(t, m, tool, flush) })
	}
}

func watchRepairs(t *testing.T, m mode, tool string, flush []string) {
	_, plan, lab := mixed(t, m)
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	good := m.list(t, lab.Node)
	for _, f := range flush {
		onNode(t, lab.Node, tool+f)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	repaired := make(chan []string, 1)
	go b.(*loop.IPTables).Watch(ctx, 50*time.Millisecond, func(lines []string, err error) {
		if err != nil {
			t.Error(err)
		}
		repaired <- lines
		cancel()
	})
	select {
	case lines := <-repaired:
		if len(lines) == 0 || m.list(t, lab.Node) != good {
			t.Errorf("%s: %d lines repaired, listed now:\n%s", flush, len(lines), m.list(t, lab.Node))
		}
	case <-time.After(15 * time.Second):
		t.Errorf("%s went unnoticed", flush)
	}
}

// TestIPTablesAffinityKept: a client keeps its endpoint while others come and go, and
// gets another when its own goes.
func TestIPTablesAffinityKept(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, _ string) {
		s, plan, lab := mixed(t, m)
		b := m.open(t, lab.Node)
		apply(t, b, plan)
		p := packet.Packet{Src: netip.MustParseAddr("203.0.113.3"), Dst: netip.MustParseAddrPort("10.96.0.40:80"), Proto: packet.TCP}
		reach := func() netip.AddrPort {
			o, err := lab.Send(p, answer)
			if err != nil || !o.Reached() {
				t.Fatalf("%s: %s %v", p, o, err)
			}
			return o.Endpoint
		}
		all := []string{"10.244.1.5", "10.244.1.6", "10.244.2.7"}
		mine := reach()
		without := func(i int) []string { return slices.Delete(slices.Clone(all), i, i+1) }
		for i, a := range all {
			if a == mine.Addr().String() {
				continue
			}
			for _, list := range [][]string{without(i), all} {
				apply(t, b, planWith(s, "cart", list))
				for range 5 {
					if now := reach(); now != mine {
						t.Fatalf("with endpoints %v the client went from %s to %s", list, mine, now)
					}
				}
			}
		}
		apply(t, b, planWith(s, "cart", without(slices.Index(all, mine.Addr().String()))))
		if now := reach(); now == mine {
			t.Fatalf("the client is still sent to %s, which is gone", mine)
		}
	})
}

// TestIPTablesNoGap: while endpoints change many times, no connect fails.
func TestIPTablesNoGap(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, _ string) { noGap(t, m, 30, 10, 2) })
}

// TestStaleFlowMoves: a UDP client that keeps its socket moves to the endpoint that is
// left once its own is gone, and one that began before there was any finds the first.
func TestStaleFlowMoves(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, _ string) { staleFlowMoves(t, m) })
}

func staleFlowMoves(t *testing.T, m mode) {
	s, plan, lab := mixed(t, m)
	b := m.open(t, lab.Node)
	vip := plan.Ports[slices.IndexFunc(plan.Ports, func(sp *proxy.ServicePort) bool { return sp.Proto == packet.UDP && len(sp.Cluster) > 1 })]
	name := vip.Service.Name
	first, last := vip.Cluster[0].Addr.Addr().String(), vip.Cluster[1].Addr.Addr().String()
	var now *proxy.Plan
	change := func(addrs ...string) {
		next := planWith(s, name, addrs)
		apply(t, b, next)
		err := lab.Node.Do(func() error {
			_, err := kernel.DeleteFlows(context.Background(), proxy.StaleFlows(now, next))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		now = next
	}
	change()
	var conn net.Conn
	to := netip.AddrPortFrom(vip.ClusterIP, vip.Port)
	if err := lab.Clients.Do(func() (err error) {
		conn, err = net.Dial("udp", to.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := ask(conn); got != "" {
		t.Errorf("without endpoints %q answered", got)
	}
	for _, want := range []string{first, last, first} {
		change(want)
		if got := ask(conn); !strings.HasPrefix(got, want+":") {
			t.Errorf("answered %q, want from %s", got, want)
		}
	}
}

// ask sends one datagram, again after an error of the one before, and returns the
// answer.
func ask(conn net.Conn) string {
	buf := make([]byte, 128)
	for range 3 {
		_, _ = conn.Write([]byte("?"))
		_ = conn.SetReadDeadline(time.Now().Add(silence))
		if n, err := conn.Read(buf); err == nil {
			return string(buf[:n])
		}
	}
	return ""
}
