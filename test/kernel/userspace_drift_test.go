package kernel_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/userspace"
	"fairway/server/stream"
	"fairway/test/netlab"
	"fairway/test/story"
)

// userspaceLab is a story's node with the process's part running on it.
type userspaceLab struct {
	*netlab.Lab
	story   *story.Story
	plan    *proxy.Plan
	server  *stream.Server
	backend *loop.Userspace
}

func newUserspaceLab(t *testing.T, path string) *userspaceLab {
	t.Helper()
	requireKernel(t)
	s := story.Load(t, path)
	userspaceMode().settings(&s.Config)
	plan, _ := s.Plan()
	l := &userspaceLab{Lab: newLab(t, plan, s.Packets), story: s, plan: plan}
	l.open(t)
	apply(t, l.backend, plan)
	return l
}

func (l *userspaceLab) open(t *testing.T) {
	l.server = stream.New(stream.Settings{Enter: l.Node.Do})
	server := l.server
	t.Cleanup(func() { kill(server) })
	l.backend = loop.NewUserspace(l.server, loop.NewNFTables(kernel.NewNFTablesNamed(l.Node.NS(), userspace.TableName)))
}

// reach asks from and returns the endpoint met and whom it saw.
func (l *userspaceLab) reach(t *testing.T, proto packet.Protocol, from, to string) (netip.AddrPort, netip.Addr) {
	t.Helper()
	o, err := l.Send(packet.Packet{Src: netip.MustParseAddr(from), Dst: netip.MustParseAddrPort(to), Proto: proto}, answer)
	if err != nil || !o.Reached() {
		t.Fatalf("%s %s > %s: %s %v", proto, from, to, o, err)
	}
	return o.Endpoint, o.Source
}

// TestUserspaceDrift: what somebody changes in the rules is found, said in the mode's own
// words, and put right.
func TestUserspaceDrift(t *testing.T) {
	l := newUserspaceLab(t, "testdata/mixed.txtar")
	good := nftList(t, l.Node)
	if lines, err := l.backend.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Fatalf("audit of an untouched kernel: %v %q", err, lines)
	}
	for _, damage := range []string{
		"delete element ip fairway-userspace services { 10.96.0.10 . udp . 53 }",
		"add element ip fairway-userspace cluster-ips { 10.96.99.99 }",
		"insert rule ip fairway-userspace services tcp dport 53 drop",
		"delete table ip fairway-userspace",
		"flush ruleset",
	} {
		nft(t, l.Node, damage)
		lines, err := l.backend.Audit(context.Background())
		if err != nil || len(lines) == 0 || !strings.Contains(lines[0], "fairway-userspace") {
			t.Fatalf("%s: audit: %v, %q", damage, err, lines)
		}
		if now := nftList(t, l.Node); now != good {
			t.Fatalf("%s: not repaired by %s\n--- now\n%s--- before\n%s", damage, strings.Join(lines, "\n"), now, good)
		}
	}
	sendAll(t, l.Lab, l.plan, l.story.Packets[:2])
}

// TestUserspaceTurns: endpoints take turns (the articles' userspace mode), the client is
// known to the process though the endpoint sees the node, and counts tell.
func TestUserspaceTurns(t *testing.T) {
	l := newUserspaceLab(t, "testdata/mixed.txtar")
	seen := map[netip.AddrPort]int{}
	for range 12 {
		to, saw := l.reach(t, packet.UDP, "203.0.113.3", "10.96.0.10:53")
		if seen[to]++; saw == netip.MustParseAddr("203.0.113.3") {
			t.Fatalf("%s saw the client", to)
		}
	}
	for to, n := range seen {
		if n != 12/len(seen) {
			t.Errorf("%d of 12 to %s", n, to)
		}
	}
	counts, err := l.backend.Counters(context.Background())
	total := uint64(0)
	for _, c := range counts {
		total += c.Connections
		if c.Connections > 0 && (!c.Measured || c.BytesIn+c.BytesOut == 0) {
			t.Errorf("counts %+v", c)
		}
	}
	if err != nil || total != 12 {
		t.Errorf("%d connections counted, %v", total, err)
	}
	// By the listener's own address, past the rules, nobody is served.
	for _, in := range userspace.Compile(nil, l.plan, true, userspace.Carry{}).Listeners {
		for _, p := range []packet.Packet{{Src: netip.MustParseAddr("203.0.113.3")}, {Src: in.Addr.Addr(), Local: true}} {
			p.Dst, p.Proto = in.Addr, in.Key.Proto
			if o, _ := l.Send(p, answer); in.Inner && p.Proto == packet.TCP && p.Src.Is4() == in.Addr.Addr().Is4() && o.Reached() {
				t.Errorf("%s past the rules: %s", p, o)
			}
		}
	}
	// Affinity: two clients, each with its endpoint.
	for _, from := range []string{"203.0.113.3", "203.0.113.2"} {
		mine, _ := l.reach(t, packet.TCP, from, "10.96.0.40:80")
		for range 4 {
			if now, _ := l.reach(t, packet.TCP, from, "10.96.0.40:80"); now != mine {
				t.Errorf("%s went from %s to %s", from, mine, now)
			}
		}
	}
}

// TestUserspaceNoGap: while endpoints change no connect fails; and when the process
// leaves, the kernel forwards in its place until the next one takes over.
func TestUserspaceNoGap(t *testing.T) {
	l := newUserspaceLab(t, "testdata/mixed.txtar")
	stop := connecting(t, l.Lab, l.story.Packets[:2], nil)
	for i := range 40 {
		plan := l.planWith("dns", []string{"10.244.1.6", []string{"10.244.1.5", "10.244.2.7", ""}[i%3]})
		if i%20 == 10 {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			if err := l.backend.Leave(ctx, plan); err != nil {
				t.Error(err)
			}
			cancel()
			l.open(t)
		}
		apply(t, l.backend, plan)
	}
	t.Logf("%d connects during 40 changes and 2 restarts", stop())
}

// planWith is the story's plan in this mode with other endpoints for one Service.
func (l *userspaceLab) planWith(service string, addrs []string) *proxy.Plan {
	return planWith(l.story, service, addrs)
}

// TestUserspaceLeaves: what the process leaves behind is rules that reach the endpoints
// without it.
func TestUserspaceLeaves(t *testing.T) {
	l := newUserspaceLab(t, "testdata/mixed.txtar")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := l.backend.Leave(ctx, l.plan); err != nil {
		t.Fatal(err)
	}
	if problems, err := l.backend.Apply(context.Background(), l.plan); err != nil || len(problems) > 0 { // the loop goes on to the last
		t.Errorf("apply after leaving: %v %v", err, problems)
	}
	plain := l.story.Config.WithMode(proxy.NFTables)
	plain.LocalhostNodePorts = false
	snap, _ := model.Build(nil, l.story.Objects)
	direct, _ := proxy.New(nil, snap, plain)
	packets := slices.DeleteFunc(slices.Clone(l.story.Packets), func(p packet.Packet) bool { return p.Dst.Addr().IsLoopback() })
	sendAll(t, l.Lab, direct, packets)
	if err := l.backend.Cleanup(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := nftList(t, l.Node); left != "" {
		t.Errorf("left after cleanup:\n%s", left)
	}
}

// TestUserspacePortTaken: a port that is taken gives way to another, and packets are led
// there.
func TestUserspacePortTaken(t *testing.T) {
	l := newUserspaceLab(t, "testdata/mixed.txtar")
	prog := userspace.Compile(nil, l.plan, true, userspace.Carry{})
	kill(l.server)
	for _, in := range prog.Listeners {
		if in.Inner {
			if err := l.Serve(in.Key.Proto, in.Addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.open(t)
	apply(t, l.backend, l.plan)
	sendAll(t, l.Lab, l.plan, l.story.Packets)
}

// TestRelayedLocalhost: rules of the nftables mode, and listeners beside them for what
// goes to localhost.
func TestRelayedLocalhost(t *testing.T) {
	requireKernel(t)
	s := story.Load(t, "testdata/localhost.txtar")
	s.Config = s.Config.WithMode(proxy.NFTables)
	s.Config.LocalhostRelay = true
	plan, problems := s.Plan()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	lab := newLab(t, plan, s.Packets)
	apply(t, nftablesMode().open(t, lab.Node), plan)
	server := stream.New(stream.Settings{Enter: lab.Node.Do})
	t.Cleanup(func() { kill(server) })
	stage := &loop.Localhost{Server: server, Wake: func() {}}
	stage.Publish(context.Background(), nil, plan)
	if p := stage.Standing(); len(p) > 0 {
		t.Fatal(p)
	}
	sendAll(t, lab, plan, s.Packets)
	empty, _ := proxy.New(plan, emptySnapshot(), plan.Config)
	stage.Publish(context.Background(), nil, empty)
	o, err := lab.Send(s.Packets[1], answer)
	if err != nil || !o.Refused {
		t.Errorf("after the Service has gone: %s %v", o, err)
	}
}
