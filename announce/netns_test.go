package announce

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests here run announcers as processes of their own in network namespaces on one
// bridge without any route outside: TestMain becomes such a process when asked to.

const (
	vip4 = "10.77.0.100"
	vip6 = "fd77::100"
)

func TestMain(m *testing.M) {
	switch os.Getenv("ANNOUNCE_ROLE") {
	case "node":
		nodeProcess()
	case "client":
		clientProcess()
	default:
		os.Exit(m.Run())
	}
}

// nodeProcess obeys lines on stdin: set [ADDR…], lease DURATION, unreachable, stats. It
// answers TCP on port 8080 with its name.
func nodeProcess() {
	fence := &Fence{Quiet: time.Second}
	a := &Announcer{Fence: fence}
	go a.Run(context.Background())
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, os.Getenv("ANNOUNCE_NAME")+"\n")
			_ = c.Close()
		}
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		f := strings.Fields(in.Text())
		switch f[0] {
		case "set":
			want := map[netip.Addr][]string{}
			for _, ip := range f[1:] {
				want[netip.MustParseAddr(ip)] = nil
			}
			fmt.Println("set", a.Set(want))
		case "lease":
			d, _ := time.ParseDuration(f[1])
			fence.Extend(Now() + d)
			fmt.Println("lease")
		case "unreachable":
			fence.Unreachable()
			fmt.Println("unreachable")
		case "stats":
			fmt.Println(a.Stats())
		}
	}
}

func clientProcess() {
	c, err := net.DialTimeout("tcp", os.Getenv("ANNOUNCE_DIAL"), 2*time.Second)
	if err != nil {
		fmt.Println("no", err)
		return
	}
	_, _ = io.Copy(os.Stdout, c)
}

type lan struct {
	t      *testing.T
	prefix string
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	for _, tool := range []string{"ip", "arping", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the program %s", tool)
		}
	}
	l := &lan{t: t, prefix: fmt.Sprintf("fwa%d", os.Getpid())}
	l.ip("netns", "add", l.ns("br"))
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.ns("br")).Run() })
	l.ip("-n", l.ns("br"), "link", "add", "br0", "type", "bridge")
	l.ip("-n", l.ns("br"), "link", "set", "br0", "up")
	for i, n := range []string{"a", "b", "c"} {
		l.join(n, i+1)
	}
	return l
}

func (l *lan) ns(n string) string { return l.prefix + n }

func (l *lan) ip(args ...string) string { return l.run("ip", args...) }

func (l *lan) run(name string, args ...string) string {
	l.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// join makes the namespace of one station. The VIPs are local routes, not addresses: a
// station accepts their traffic but its kernel answers no ARP for them.
func (l *lan) join(n string, i int) {
	ns := l.ns(n)
	l.ip("netns", "add", ns)
	l.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	l.ip("-n", l.ns("br"), "link", "add", "p"+n, "type", "veth", "peer", "name", "eth0", "netns", ns)
	l.ip("-n", l.ns("br"), "link", "set", "p"+n, "master", "br0", "up")
	l.ip("-n", ns, "link", "set", "eth0", "address", l.mac(n), "up")
	l.ip("-n", ns, "link", "set", "lo", "up")
	l.ip("-n", ns, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i), "dev", "eth0")
	l.ip("-n", ns, "addr", "add", fmt.Sprintf("fd77::%d/64", i), "dev", "eth0", "nodad")
	if n != "c" {
		l.ip("-n", ns, "route", "add", "local", vip4, "dev", "lo")
		l.ip("-n", ns, "route", "add", "local", vip6, "dev", "lo")
		l.run("ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1")
	}
}

func (l *lan) mac(n string) string { return "02:00:00:00:00:0" + n }

type station struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
	t   *testing.T
}

func (l *lan) start(n string) *station {
	l.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", l.ns(n), os.Args[0])
	cmd.Env = append(os.Environ(), "ANNOUNCE_ROLE=node", "ANNOUNCE_NAME="+n)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		l.t.Fatal("cannot start station", n)
	}
	s := &station{cmd: cmd, in: in, out: bufio.NewScanner(out), t: l.t}
	l.t.Cleanup(s.kill)
	return s
}

func (s *station) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *station) do(line string) string {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil || !s.out.Scan() {
		s.t.Fatalf("%s: station is gone (%v)", line, err)
	}
	if strings.HasPrefix(line, "set") && s.out.Text() != "set <nil>" {
		s.t.Fatalf("%s: %s", line, s.out.Text())
	}
	return s.out.Text()
}

// who lists the stations that answer three ARP requests within a second.
func (l *lan) who() string {
	out, _ := exec.Command("ip", "netns", "exec", l.ns("c"), "arping", "-b", "-c", "2", "-w", "2", "-I", "eth0", vip4).CombinedOutput()
	var who string
	for _, n := range []string{"a", "b"} {
		if strings.Contains(strings.ToLower(string(out)), l.mac(n)) {
			who += n
		}
	}
	return who
}

func (l *lan) expect(when, want string) {
	l.t.Helper()
	if got := l.who(); got != want {
		l.t.Errorf("%s: %q answer, want %q", when, got, want)
	}
}

func (l *lan) dial(ip string) string {
	cmd := exec.Command("ip", "netns", "exec", l.ns("c"), os.Args[0])
	cmd.Env = append(os.Environ(), "ANNOUNCE_ROLE=client", "ANNOUNCE_DIAL="+net.JoinHostPort(ip, "8080"))
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

// cacheMovesTo waits until the client's kernel has the station's MAC for ip without
// having asked.
func (l *lan) cacheMovesTo(ip, n string) {
	l.t.Helper()
	start := time.Now()
	for time.Since(start) < 2*time.Second {
		if strings.Contains(l.ip("-n", l.ns("c"), "neigh", "show", ip), l.mac(n)) {
			l.t.Logf("%s: the client's cache names %s after %s", ip, n, time.Since(start).Round(time.Millisecond))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.t.Errorf("%s: the client's cache never names %s: %s", ip, n, l.ip("-n", l.ns("c"), "neigh", "show", ip))
}

func TestHandOver(t *testing.T) {
	l := newLAN(t)
	a, b := l.start("a"), l.start("b")
	l.expect("before anything", "")
	a.do("lease 1m")
	b.do("lease 1m")
	a.do("set " + vip4 + " " + vip6)
	l.expect("a owns", "a")
	for _, ip := range []string{vip4, vip6} {
		if got := l.dial(ip); got != "a" {
			t.Errorf("dial %s: %q, want a", ip, got)
		}
	}
	a.do("set")
	b.do("set " + vip4 + " " + vip6)
	l.cacheMovesTo(vip4, "b")
	l.cacheMovesTo(vip6, "b")
	l.expect("b owns", "b")
	for _, ip := range []string{vip4, vip6} {
		if got := l.dial(ip); got != "b" {
			t.Errorf("dial %s: %q, want b", ip, got)
		}
	}
	b.kill()
	l.expect("b is killed", "")
	a.do("set " + vip4 + " " + vip6)
	l.cacheMovesTo(vip4, "a")
	l.cacheMovesTo(vip6, "a")
	if got := l.dial(vip6); got != "a" {
		t.Errorf("dial %s after the kill: %q, want a", vip6, got)
	}
}

func TestFenceOnTheWire(t *testing.T) {
	l := newLAN(t)
	a, b := l.start("a"), l.start("b")
	a.do("set " + vip4)
	l.expect("no Lease yet", "")
	a.do("lease 1m")
	l.expect("Lease", "a")

	// Frozen past its Lease: what queued meanwhile is not answered after the thaw.
	a2 := l.restart(a, "a")
	a2.do("set " + vip4)
	a2.do("lease 500ms")
	_ = a2.cmd.Process.Signal(syscall.SIGSTOP)
	time.AfterFunc(1200*time.Millisecond, func() { _ = a2.cmd.Process.Signal(syscall.SIGCONT) })
	l.expect("frozen and thawed", "")

	// No API server anywhere: silent at first, then holding on, until another claims.
	a2.do("unreachable")
	time.Sleep(1500 * time.Millisecond)
	l.expect("holding on", "a")
	b.do("lease 1m")
	b.do("set " + vip4)
	time.Sleep(300 * time.Millisecond)
	l.expect("b took over", "b")
	a2.do("set")
	a2.do("lease 1m")
	l.expect("a is back without the address", "b")
}

func (l *lan) restart(s *station, n string) *station {
	s.kill()
	return l.start(n)
}
