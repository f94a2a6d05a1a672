package manifests

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairway/packet"
)

// metric reads one value at :10249, 0 when it is not there.
func (m *machine) metric(line string) int {
	m.t.Helper()
	var out []byte
	m.lab.Node.Do(func() error {
		out, _ = exec.Command("curl", "-s", "-m", "8", "http://127.0.0.1:10249/metrics").CombinedOutput()
		return nil
	})
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + ` (\S+)$`).FindSubmatch(out)
	if match == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil {
		m.t.Fatal(line, err)
	}
	return int(v)
}

// TestServiceCounters: connections to a Service are counted, each once, wherever they came
// in, and no other Service's are.
func TestServiceCounters(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			m := newMachine(t)
			m.write("a.yaml", service("web", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr(), podB.Addr()))
			m.write("b.yaml", service("idle", "10.96.0.81", "TCP", 80, 30081, 8080, podA.Addr()))
			m.config = "roles: [proxy]\n"
			m.start(mode)
			outside := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}
			inside := packet.Packet{Proto: packet.TCP, Src: podB.Addr(), Dst: netip.MustParseAddrPort("10.96.0.80:80")}
			m.reachesOne(outside)
			const name = `fairway_service_connections_total{namespace="default",port="p",protocol="TCP",service="web"}`
			before := m.metric(name)
			for i := range 12 {
				p := inside
				if i%3 == 0 {
					p = outside
				}
				if o, err := m.lab.Send(p, 2*time.Second); err != nil || !o.Reached() {
					t.Fatalf("%s: %v %v", p, o, err)
				}
			}
			if got := m.metric(name) - before; got != 12 {
				t.Errorf("%d connections counted, want 12", got)
			}
			if n := m.metric(`fairway_service_connections_total{namespace="default",port="p",protocol="TCP",service="idle"}`); n != 0 {
				t.Errorf("%d connections of a Service nobody used", n)
			}
			if mode == "iptables" && (m.metric(`kubeproxy_sync_proxy_rules_iptables_total{ip_family="IPv4",table="nat"}`) < 15 ||
				m.metric(`kubeproxy_sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"}`) < 15) {
				t.Error("the rules in nat are not counted")
			}
		})
	}
}

// TestNoServiceCounters: who wants none has none in the kernel either, and has them taken
// out when they were there.
func TestNoServiceCounters(t *testing.T) {
	m := newMachine(t)
	m.write("a.yaml", service("web", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr()))
	nodePort := packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}
	for _, on := range []bool{true, false} {
		m.config = fmt.Sprintf("roles: [proxy]\nproxy: {serviceCounters: %v}\n", on)
		m.start("nftables")
		m.reachesOne(nodePort)
		m.run("^ok$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/readyz") // the old one's rules serve, too
		var rules string
		m.lab.Node.Do(func() error { rules = m.rules(); return nil })
		if got := strings.Contains(rules, "counter packets"); got != on {
			t.Errorf("serviceCounters: %v, and the rules are\n%s", on, rules)
		}
		m.stop(syscall.SIGKILL)
	}
}
