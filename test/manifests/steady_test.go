package manifests

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairway/packet"
	"fairway/test/netlab"

	"github.com/vishvananda/netlink"
)

// modes are those whose rules go on in the kernel without the program; IPVS mode needs
// another kernel than the build machine's.
func modes() []string { return []string{"nftables", "iptables", "ebpf"} }

// allModes has the one with none as well.
func allModes() []string { return append(modes(), "userspace") }

// service writes a Service with its endpoints, all of one target port.
func service(name, vip string, proto string, port, nodePort, target int, endpoints ...netip.Addr) string {
	var list []string
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf("{addresses: [%s]}", e))
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {type: NodePort, clusterIP: %[2]s, ports: [{name: p, protocol: %[3]s, port: %[4]d, nodePort: %[5]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: p, protocol: %[3]s, port: %[6]d}]
endpoints: [%[7]s]
`, name, vip, proto, port, nodePort, target, strings.Join(list, ", "))
}

// steady dials a Service over and over from one host, each connection anew.
type steady struct {
	dials, failures atomic.Int64
	mu              sync.Mutex
	first           error
}

func (s *steady) run(ctx context.Context, h *netlab.Host, from netip.Addr, to string) error {
	return h.Do(func() error {
		for ctx.Err() == nil {
			d := net.Dialer{Timeout: 2 * time.Second, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, FallbackDelay: -1}
			d.SetMultipathTCP(false)
			s.dials.Add(1)
			if err := dialOnce(&d, to); err != nil {
				s.failures.Add(1)
				s.mu.Lock()
				if s.first == nil {
					s.first = fmt.Errorf("%s at %s: %w", to, time.Now().Format("15:04:05.000"), err)
				}
				s.mu.Unlock()
			}
			time.Sleep(3 * time.Millisecond)
		}
		return nil
	})
}

func dialOnce(d *net.Dialer, to string) error {
	c, err := d.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	buf := make([]byte, 128)
	if n, err := c.Read(buf); n == 0 {
		return fmt.Errorf("connected, and no answer: %w", err)
	}
	return nil
}

// TestKilledAtAnyTime: through 200 changes of other Services, with the program killed at
// random points and started again, no connection to a Service that did not change fails,
// and in the end the kernel has what the objects ask for.
func TestKilledAtAnyTime(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) { killStory(t, mode) })
	}
}

func killStory(t *testing.T, mode string) {
	m := newMachine(t)
	m.write("steady.yaml", service("steady", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr(), podB.Addr()))
	m.config = "roles: [proxy]\n"
	m.start(mode)
	m.reaches(packet.Packet{Proto: packet.TCP, Src: podB.Addr(), Dst: netip.MustParseAddrPort("10.96.0.80:80")}, podA)
	ctx, stop := context.WithCancel(context.Background())
	var s steady
	var clients sync.WaitGroup
	for _, c := range []struct {
		from netip.Addr
		to   string
	}{{client, node.String() + ":30080"}, {podB.Addr(), "10.96.0.80:80"}} {
		clients.Go(func() {
			if err := s.run(ctx, m.lab.Host(c.from), c.from, c.to); err != nil {
				t.Error(err)
			}
		})
	}
	seed := uint64(time.Now().UnixNano())
	kills := m.churn(rand.New(rand.NewPCG(seed, 0)), mode)
	m.run("^ok$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/readyz")
	m.run("^$", m.bin, "diff", "--config", m.configFile(), "-f", m.dir, "--node", "node1", "--backend", mode)
	stop()
	clients.Wait()
	t.Logf("%s: %d dials, %d failed, %d kills, seed %d", mode, s.dials.Load(), s.failures.Load(), kills, seed)
	if s.failures.Load() > 0 || s.dials.Load() < 500 {
		t.Errorf("%d of %d connections failed (seed %d), first: %v", s.failures.Load(), s.dials.Load(), seed, s.first)
	}
}

// churn makes 200 changes, and kills the program at about every tenth, at any point of its
// work on it.
func (m *machine) churn(r *rand.Rand, mode string) (kills int) {
	for i := range 200 {
		n := r.IntN(8)
		endpoints := []netip.Addr{podA.Addr(), podB.Addr(), netip.MustParseAddr("10.244.1.77")}[:r.IntN(4)]
		name := fmt.Sprintf("other%d", n)
		text := service(name, fmt.Sprintf("10.96.1.%d", n+1), "TCP", 80, 30100+n, 8080, endpoints...)
		if r.IntN(6) == 0 {
			text = "" // the Service is gone
		}
		m.write(name+".yaml", text)
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		if r.IntN(10) == 0 || i == 150 {
			m.stop(syscall.SIGKILL)
			kills++
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			m.start(mode)
			time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
		}
	}
	return kills
}

// TestFlowsFollow: UDP flows that began before a change follow it, also one to or from no
// endpoint at all, of the target port, and the Service's end; those that are right stay
// where they are over a kill and a restart; TCP connections are left alone.
func TestFlowsFollow(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) { flowStory(t, mode) })
	}
}

func flowStory(t *testing.T, mode string) {
	m := newMachine(t)
	ports := []netip.AddrPort{netip.AddrPortFrom(podA.Addr(), 5353), netip.AddrPortFrom(podB.Addr(), 5353), netip.AddrPortFrom(podB.Addr(), 9953)}
	for _, a := range ports {
		if err := m.lab.Serve(packet.UDP, a); err != nil {
			t.Fatal(err)
		}
	}
	echo := serveEcho(t, m.lab.Host(podA.Addr()), netip.AddrPortFrom(podA.Addr(), 7000))
	defer echo.Close()
	dns := func(target int, to ...netip.Addr) {
		m.write("dns.yaml", service("dns", "10.96.0.53", "UDP", 53, 30053, target, to...))
	}
	long := func(to ...netip.Addr) {
		m.write("long.yaml", service("long", "10.96.0.70", "TCP", 70, 30070, 7000, to...))
	}
	m.config = "roles: [proxy]\nproxy: {serviceCIDRs: [10.96.0.0/16]}\n"
	dns(5353, podA.Addr(), podB.Addr())
	long(podA.Addr())
	m.start(mode)
	probe := packet.Packet{Proto: packet.UDP, Src: client, Dst: netip.AddrPortFrom(node, 30053)}
	m.reachesOne(probe)

	inside := m.lab.Host(podB.Addr()).Talk(t, 12, "10.96.0.53:53")
	outside := m.lab.Host(client).Talk(t, 12, node.String()+":30053")
	conn := m.hold("10.96.0.70:70")
	in, out := inside.Heard(), outside.Heard()
	m.stop(syscall.SIGKILL)
	m.start(mode)
	m.run("^ok$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/readyz")
	time.Sleep(500 * time.Millisecond)
	if in2, out2 := inside.Heard(), outside.Heard(); fmt.Sprint(in, out) != fmt.Sprint(in2, out2) {
		t.Errorf("a restart moved flows that were right:\n%q %q\n%q %q", in, out, in2, out2)
	}
	conn.alive("after a restart")

	dns(5353, podB.Addr())
	inside.Until("an endpoint is gone", ports[1].String())
	outside.Until("an endpoint is gone", ports[1].String())
	dns(9953, podB.Addr())
	inside.Until("the target port changed", ports[2].String())
	outside.Until("the target port changed", ports[2].String())
	dns(5353)
	inside.Until("no endpoint is left", "")
	outside.Until("no endpoint is left", "")
	dns(5353, podA.Addr())
	inside.Until("there is one again", ports[0].String())
	outside.Until("there is one again", ports[0].String())
	m.write("dns.yaml", "")
	inside.Until("the Service is deleted", "")
	m.forgotten("10.96.0.53", ports[0].Addr())
	dns(5353, podA.Addr())
	inside.Until("the Service is back", ports[0].String())
	m.stop(syscall.SIGKILL)
	m.write("dns.yaml", "")
	m.start(mode)
	inside.Until("the Service was deleted while nobody looked", "")
	m.forgotten("10.96.0.53", ports[0].Addr())

	long(podB.Addr())
	time.Sleep(time.Second)
	conn.alive("its endpoint left the Service")
	m.write("long.yaml", "")
	time.Sleep(time.Second)
	conn.alive("its Service is deleted")
}

// reachesOne waits until anybody answers.
func (m *machine) reachesOne(p packet.Packet) {
	m.t.Helper()
	for range 100 {
		if o, err := m.lab.Send(p, 300*time.Millisecond); err == nil && o.Reached() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	m.t.Fatalf("%s reaches nobody", p)
}

// forgotten checks that conntrack has no UDP flow of the VIP that leads to the endpoint.
func (m *machine) forgotten(vip string, endpoint netip.Addr) {
	m.t.Helper()
	err := m.lab.Node.Do(func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(syscall.AF_INET))
		for _, f := range list {
			if f.Forward.DstIP.String() == vip && f.Reverse.SrcIP.String() == endpoint.String() {
				return fmt.Errorf("conntrack still has %s", f)
			}
		}
		return err
	})
	if err != nil {
		m.t.Error(err)
	}
}

// held is one TCP connection through a Service.
type held struct {
	t    *testing.T
	conn net.Conn
	read *bufio.Reader
}

func (m *machine) hold(to string) *held {
	m.t.Helper()
	h := &held{t: m.t}
	err := m.lab.Host(podB.Addr()).Do(func() (err error) {
		for range 50 {
			if h.conn, err = net.DialTimeout("tcp", to, time.Second); err == nil {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	h.read = bufio.NewReader(h.conn)
	m.t.Cleanup(func() { h.conn.Close() })
	h.alive("at first")
	return h
}

func (h *held) alive(when string) {
	h.t.Helper()
	h.conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := h.conn.Write([]byte("hello\n")); err != nil {
		h.t.Errorf("%s: the TCP connection is cut: %v", when, err)
	}
	if line, err := h.read.ReadString('\n'); err != nil || line != "hello\n" {
		h.t.Errorf("%s: the TCP connection is cut: %q %v", when, line, err)
	}
}

func serveEcho(t *testing.T, h *netlab.Host, at netip.AddrPort) net.Listener {
	t.Helper()
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() { defer c.Close(); io.Copy(c, c) }()
			}
		}
	}()
	return l
}
