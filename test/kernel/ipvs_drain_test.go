package kernel_test

import (
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/loop"
	"fairway/proxy"
	"fairway/test/netlab"
	"fairway/test/story"
)

// weights lists a virtual service's destinations as ADDR:PORT=WEIGHT.
func weights(t *testing.T, node *netlab.Host, service string) string {
	t.Helper()
	var out []byte
	if err := node.Do(func() (err error) {
		out, err = exec.Command("ipvsadm", "-S", "-n").Output()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, l := range strings.Split(string(out), "\n") {
		if f := strings.Fields(l); len(f) == 8 && f[0] == "-a" && f[2] == service {
			list = append(list, f[4]+"="+f[7])
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// talk opens a connection that stays open, and returns a function that tells whether it
// still carries data.
func talk(t *testing.T, lab *netlab.Lab, dst string) (net.Conn, func() bool) {
	t.Helper()
	var conn net.Conn
	err := lab.Clients.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", dst, answer)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() bool {
		_ = conn.SetDeadline(time.Now().Add(answer))
		buf := make([]byte, 4)
		if _, err := conn.Write([]byte("echo")); err != nil {
			return false
		}
		_, err := io.ReadFull(conn, buf)
		return err == nil && string(buf) == "echo"
	}
}

// echo serves connections that stay open on an address of a pod.
func echo(t *testing.T, lab *netlab.Lab, addr string) {
	t.Helper()
	err := lab.Host(netip.MustParseAddrPort(addr).Addr()).Do(func() error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const drainStory = `
-- objects.yaml --
apiVersion: v1
kind: Service
metadata: {name: talk, namespace: shop}
spec: {clusterIP: 10.96.0.60, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: talk-1, namespace: shop, labels: {kubernetes.io/service-name: talk}}
addressType: IPv4
ports: [{name: "", port: 7}]
endpoints: [{addresses: [10.244.1.5], nodeName: node1}, {addresses: [10.244.1.6], nodeName: node1}]
`

// TestIPVSGraceful: a connection to an endpoint that is taken out goes on; nothing new
// is sent there; when it ends the destination is deleted. One that comes back gets its
// weight back, after a restart of the program too.
func TestIPVSGraceful(t *testing.T) {
	requireIPVS(t)
	s, err := story.Parse("drain", []byte(drainStory))
	if err != nil {
		t.Fatal(err)
	}
	m := ipvsMode()
	m.settings(&s.Config)
	plan, _ := s.Plan()
	lab, err := netlab.New(netlab.Layout{NodeAddrs: plan.Config.NodeIPs, Clients: []netip.Addr{netip.MustParseAddr("203.0.113.2")},
		Pods: []netlab.Pod{{Addrs: []netip.Addr{netip.MustParseAddr("10.244.1.5")}}, {Addrs: []netip.Addr{netip.MustParseAddr("10.244.1.6")}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	echo(t, lab, "10.244.1.5:7")
	echo(t, lab, "10.244.1.6:7")
	b := m.open(t, lab.Node)
	expect := func(when, want string) {
		t.Helper()
		if got := weights(t, lab.Node, "10.96.0.60:80"); got != want {
			t.Fatalf("%s: %s, want %s", when, got, want)
		}
	}
	only := func(addrs ...string) *proxy.Plan { return planWith(s, "talk", addrs) }
	apply(t, b, only("10.244.1.5"))
	conn, alive := talk(t, lab, "10.96.0.60:80")
	defer conn.Close()
	apply(t, b, only("10.244.1.6"))
	expect("taken out", "10.244.1.5:7=0 10.244.1.6:7=1")
	if !alive() {
		t.Fatal("the connection did not outlive its endpoint's removal")
	}
	for range 4 { // nothing new goes there
		c, ok := talk(t, lab, "10.96.0.60:80")
		if !ok() || c.RemoteAddr() == nil {
			t.Fatal("a new connection fails")
		}
		_ = c.Close()
	}
	apply(t, b, only("10.244.1.5", "10.244.1.6"))
	expect("back again", "10.244.1.5:7=1 10.244.1.6:7=1")
	apply(t, b, only("10.244.1.6"))
	if err := b.(*loop.IPVS).Drain(); err != nil {
		t.Fatal(err)
	}
	expect("still in use", "10.244.1.5:7=0 10.244.1.6:7=1")

	b = m.open(t, lab.Node) // killed, and started again
	apply(t, b, only("10.244.1.6"))
	expect("after a restart", "10.244.1.5:7=0 10.244.1.6:7=1")
	if n := b.(*loop.IPVS).Draining(); n != 1 {
		t.Fatalf("after the restart %d destinations are known to drain, want 1", n)
	}
	if !alive() {
		t.Fatal("the connection did not outlive the restart")
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if err := b.(*loop.IPVS).Drain(); err != nil {
			t.Fatal(err)
		}
		if weights(t, lab.Node, "10.96.0.60:80") == "10.244.1.6:7=1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute after its last connection: %s", weights(t, lab.Node, "10.96.0.60:80"))
		}
	}
	apply(t, b, only())
	expect("none left", "10.244.1.6:7=0")
	apply(t, b, only("10.244.1.6"))
	expect("one left", "10.244.1.6:7=1")
}

// TestIPVSStaleFlow: a UDP client that keeps its socket moves on when its endpoint goes.
func TestIPVSStaleFlow(t *testing.T) {
	requireIPVS(t)
	staleFlowMoves(t, ipvsMode())
}

// TestIPVSSchedulers: the kernel takes all eleven, and connections reach what they should.
func TestIPVSSchedulers(t *testing.T) {
	requireIPVS(t)
	m := ipvsMode()
	s := story.Load(t, "testdata/mixed.txtar")
	m.settings(&s.Config)
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b := m.open(t, lab.Node)
	for _, sch := range proxy.IPVS.Traits().Schedulers {
		s.Config.Scheduler = sch
		plan, _ := s.Plan()
		apply(t, b, plan)
		if !strings.Contains(m.list(t, lab.Node), "-A -t 10.96.0.10:53 -s "+string(sch)) {
			t.Errorf("%s is not in the kernel", sch)
		}
		seen := map[netip.AddrPort]int{}
		for range 12 {
			seen[send(t, lab, "203.0.113.2", "10.96.0.10:53").Endpoint]++
		}
		spread := sch == proxy.RoundRobin || sch == proxy.WeightedRoundRobin
		switch n := len(seen); {
		case spread && n != 3, sch.ByClient() && n != 1, n == 0 || n > 3:
			t.Errorf("%s: 12 connects of one client reached %v", sch, seen)
		case spread && seen[netip.MustParseAddrPort("10.244.1.5:53")] != 4:
			t.Errorf("%s is not even: %v", sch, seen)
		}
		t.Logf("%s: %v", sch, seen)
	}
}
