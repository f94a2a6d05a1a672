package manifests

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairway/packet"
)

// TestUserspaceProcess: mode userspace as root: everything reaches its endpoint by the
// process; when it ends in peace the kernel forwards in its place.
func TestUserspaceProcess(t *testing.T) {
	m := newMachine(t)
	m.write("a.yaml", fmt.Sprintf(objects, podA.Addr()))
	m.start("userspace", "--roles", "proxy,dns,lb")
	nodePort := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}
	vip := packet.Packet{Proto: packet.TCP, Src: podB.Addr(), Dst: netip.MustParseAddrPort("10.96.0.80:80")}
	m.reaches(nodePort, podA)
	m.reaches(vip, podA)
	m.reaches(packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.MustParseAddrPort("198.51.100.10:80")}, podA)
	lo := packet.Packet{Proto: packet.TCP, Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddrPort("127.0.0.1:30080"), Local: true}
	m.reaches(lo, podA)
	if o, err := m.lab.Send(nodePort, time.Second); err != nil || o.Source == client {
		t.Errorf("the endpoint saw %s, %v", o, err)
	}
	m.run("^userspace$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/proxyMode")
	m.run(`fairway_service_connections_total\{[^}]*service="shop"[^}]*\} [1-9]`, "curl", "-s", "-m", "2", "http://127.0.0.1:10249/metrics")
	m.write("a.yaml", fmt.Sprintf(objects, podB.Addr()))
	m.reaches(nodePort, podB)

	// Killed, nobody listens any more; started again, all is well.
	m.stop(syscall.SIGKILL)
	if o, err := m.lab.Send(nodePort, time.Second); err != nil || !o.Refused {
		t.Errorf("with the process killed: %s %v", o, err)
	}
	m.start("userspace", "--roles", "proxy,dns,lb")
	m.reaches(nodePort, podB)
	m.reaches(vip, podB)

	// Told to end, it hands over to the kernel.
	m.stop(syscall.SIGTERM)
	for range 3 {
		m.reaches(nodePort, podB)
		m.reaches(vip, podB)
	}
	// And the mode nftables takes over from there.
	m.start("nftables", "--roles", "proxy")
	m.run("^nftables$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/proxyMode")
	m.run(`^(?:table ip6? fairway\n)+$`, "sh", "-c", "nft list tables | grep fairway")
	m.reaches(vip, podB)
	m.stop(syscall.SIGTERM)
	m.run("nothing of ours is left", m.bin, "cleanup")
}

// nobodyID is the user and group nobody of Debian.
const nobodyID = 65534

// TestWithoutPrivileges: another user than root runs the mode: node ports, by the node's
// address and by localhost, on a port that anybody may open; the rest is told.
func TestWithoutPrivileges(t *testing.T) {
	m := newMachine(t)
	home, err := os.MkdirTemp("", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	bin := filepath.Join(home, "fairway")
	if out, err := exec.Command("install", "-m", "755", m.bin, bin).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	m.dir = filepath.Join(home, "manifests")
	os.Mkdir(m.dir, 0o755)
	os.Chmod(home, 0o755)
	m.write("a.yaml", fmt.Sprintf(objects, podA.Addr()))
	m.write("own.yaml", service("own", "10.96.0.90", "TCP", 8090, 0, 8080, podA.Addr())+"")
	m.cmd = exec.Command(bin, "run", "--roles", "proxy", "--proxy-mode", "userspace", "--manifests", m.dir, "--node", "node1")
	m.cmd.Dir, m.cmd.Env = home, []string{"HOME=/nonexistent", "PATH=/usr/bin:/bin"}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
	out, err := m.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Somebody else has the ports of the health checks: that stops nothing.
	var taken []net.Listener
	m.lab.Node.Do(func() error {
		for _, at := range []string{"127.0.0.1:10249", "0.0.0.0:10256"} {
			l, err := net.Listen("tcp", at)
			if err != nil {
				t.Error(err)
				continue
			}
			taken = append(taken, l)
		}
		return m.cmd.Start()
	})
	log := make(chan string, 1)
	go func() { b, _ := io.ReadAll(out); log <- string(b) }()
	t.Cleanup(func() { m.cmd.Process.Kill() })
	nodePort := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}
	lo := packet.Packet{Proto: packet.TCP, Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddrPort("127.0.0.1:30080"), Local: true}
	m.reaches(nodePort, podA)
	m.reaches(lo, podA)
	m.write("a.yaml", fmt.Sprintf(objects, podB.Addr()))
	m.reaches(nodePort, podB)
	for _, l := range taken {
		l.Close()
	}
	m.run("^userspace$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/proxyMode")
	m.cmd.Process.Signal(syscall.SIGTERM)
	text := <-log
	if err := m.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, text)
	}
	if n := strings.Count(text, "NotCaptured"); n != 1 {
		t.Errorf("what cannot be captured is told %d times:\n%s", n, text)
	}
	if strings.Contains(text, "stale UDP flows") {
		t.Errorf("it wants to delete flows:\n%s", text)
	}
	m.run(`^0\s*$`, "sh", "-c", "nft list tables | grep -c fairway")
	if t.Failed() {
		t.Log(text)
	}
}
