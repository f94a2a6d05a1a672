package manifests

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"fairway/packet"
)

// TestFallback: a mode whose tools the node lacks, or whose kernel has not what it needs,
// ends the program with the missing thing named, or, when told so, another mode is taken:
// /proxyMode says which, the log and an event say why.
func TestFallback(t *testing.T) {
	for mode, c := range map[string]struct {
		env     []string
		missing string
		never   string // a file of a kernel where nothing is missing
	}{
		"iptables": {[]string{"env", "PATH=/nowhere"}, "iptables is not installed", "/nowhere"},
		"ipvs":     {nil, "module ip_vs", "/proc/net/ip_vs"},
	} {
		t.Run(mode, func(t *testing.T) {
			if _, err := os.Stat(c.never); err == nil {
				t.Skipf("this kernel has %s", c.never)
			}
			fallbackStory(t, mode, c.env, c.missing)
		})
	}
}

func fallbackStory(t *testing.T, mode string, env []string, missing string) {
	m := newMachine(t)
	m.write("a.yaml", service("web", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr()))
	m.config, m.env = "roles: [proxy]\n", env
	m.writeConfig()
	var out []byte
	err := m.lab.Node.Do(func() (err error) {
		cmd := m.at(append(m.env, m.bin, "run", "--config", m.configFile(), "--manifests", m.dir, "--node", "node1", "--proxy-mode", mode)...)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err == nil || !strings.Contains(string(out), "proxy mode "+mode+" cannot run on this node: ") || !strings.Contains(string(out), missing) {
		t.Fatalf("without what mode %s needs: %v\n%s", mode, err, out)
	}
	m.start(mode, "--fallback-mode", "nftables")
	m.reaches(packet.Packet{Proto: packet.TCP, Src: client, Dst: netip.AddrPortFrom(node, 30080)}, podA)
	m.run("^nftables$", "curl", "-s", "-m", "2", "http://127.0.0.1:10249/proxyMode")
	for _, part := range []string{"mode " + mode + " cannot run here", missing, "mode nftables is in force", "ProxyModeFallback"} {
		if !strings.Contains(m.log.String(), part) {
			t.Errorf("the log does not say %q:\n%s", part, m.log.String())
		}
	}
}

// TestKubeProxyConfiguration: kube-proxy's own file and flags, unchanged, make the same
// proxy; what has no effect is told by its name.
func TestKubeProxyConfiguration(t *testing.T) {
	m := newMachine(t)
	m.write("a.yaml", service("web", "10.96.0.80", "TCP", 80, 30080, 8080, podA.Addr()))
	m.whole = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: 10.244.0.0/16
hostnameOverride: node1
enableProfiling: true
iptables: {masqueradeAll: true, syncPeriodd: 3s}
clientConnection: {qps: 77}
conntrack: {udpTimeout: 33s}
metricsBindAddress: 127.0.0.1:10249
`
	m.start("", "--v=3", "--conntrack-tcp-timeout-close-wait=20m", "--kube-api-burst=9")
	m.reaches(packet.Packet{Proto: packet.TCP, Src: podB.Addr(), Dst: netip.MustParseAddrPort("10.96.0.80:80")}, podA)
	o, err := m.lab.Send(packet.Packet{Proto: packet.TCP, Src: podB.Addr(), Dst: netip.MustParseAddrPort("10.96.0.80:80")}, 1e9)
	if err != nil || o.Source == podB.Addr() {
		t.Errorf("masqueradeAll is not in force: %v %v", o, err)
	}
	get := func(match, path string) {
		t.Helper()
		m.run(match, "curl", "-s", "-m", "2", "http://127.0.0.1:10249"+path)
	}
	get("^iptables$", "/proxyMode") // an empty mode is kube-proxy's
	get(`"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","apiVersion":"kubeproxy.config.k8s.io/v1alpha1".*"clusterCIDR":"10.244.0.0/16"`, "/configz")
	get("heap profile", "/debug/pprof/heap?debug=1")
	get("v=3", "/flagz")
	get(`kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`, "/metrics")
	m.run(`^33\s$`, "cat", "/proc/sys/net/netfilter/nf_conntrack_udp_timeout")
	m.run(`^1200\s$`, "cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait")
	m.run(`"nodeEligible":true,"healthy":true,"status":{"IPv4":`, "curl", "-s", "-m", "2", "http://127.0.0.1:10256/healthz")
	for _, field := range []string{"iptables.syncPeriodd", "clientConnection.qps", "clientConnection.burst"} {
		if !strings.Contains(m.log.String(), "field="+field) {
			t.Errorf("no warning about %s:\n%s", field, m.log.String())
		}
	}
	m.run("-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS", "iptables-save", "-t", "nat")
}
