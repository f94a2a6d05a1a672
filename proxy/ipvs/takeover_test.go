package ipvs

import (
	"strings"
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/test/random"

	"math/rand/v2"
)

// kubeProxySets and kubeProxyRules are what a kube-proxy in IPVS mode leaves, shortened.
const kubeProxySets = `create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x9f27b9f8
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 31234
create docker-set hash:ip family inet hashsize 1024 maxelem 65536
add docker-set 1.2.3.4
`

const kubeProxyRules = `*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
COMMIT
*filter
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
:KUBE-NODE-PORT - [0:0]
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A KUBE-IPVS-FILTER -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT --reject-with icmp-port-unreachable
COMMIT
`

func kubeProxyNode(t *testing.T) *State {
	t.Helper()
	st := NewState(false)
	if err := st.ReadSets(kubeProxySets); err != nil {
		t.Fatal(err)
	}
	st.ReadRules(kubeProxyRules)
	return st
}

// TestTakeOver: a node of kube-proxy's becomes ours: its sets are replaced by larger ones
// in one step each, its chains of our names are rewritten, those its KUBE-SERVICES leads
// to stay until that is gone.
func TestTakeOver(t *testing.T) {
	st := kubeProxyNode(t)
	r := rand.New(rand.NewPCG(5, 5))
	snap, _ := model.Build(nil, random.Cluster(r))
	plan, _ := proxy.New(nil, snap, random.Settings(r).WithMode(proxy.IPVS))
	want := Compile(nil, plan)
	c := DiffState(st, want, Draining{})
	if !strings.Contains(c.SetsBefore, "swap FAIRWAY-NEW KUBE-CLUSTER-IP\ndestroy FAIRWAY-NEW\n") || strings.Contains(c.SetsBefore, "docker") {
		t.Errorf("sets:\n%s", c.SetsBefore)
	}
	for _, line := range []string{`-D INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`,
		`-D OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER`, "-X KUBE-IPVS-OUT-FILTER", ":KUBE-IPVS-FILTER - [0:0]"} {
		if !strings.Contains(c.Rules, line+"\n") {
			t.Errorf("%q is not in\n%s", line, c.Rules)
		}
	}
	if strings.Contains(c.Rules, "KUBE-NODE-PORT ") || strings.Contains(c.Rules, "KUBE-SERVICES ") && strings.Contains(c.Rules, " KUBE-SERVICES ") {
		t.Errorf("touches what is still in use:\n%s", c.Rules)
	}
	apply(t, st, c)
	if d := Drift(st, want, Draining{}); len(d) > 0 {
		t.Errorf("after it:\n%s", strings.Join(d, "\n"))
	}
}

// TestRemoveKubeProxy: what is its IPVS mode's alone goes, and the jumps to it.
func TestRemoveKubeProxy(t *testing.T) {
	c := Removal(kubeProxyNode(t))
	for _, line := range []string{"-X KUBE-NODE-PORT", "-X KUBE-LOAD-BALANCER", "-X KUBE-IPVS-FILTER", "-D KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
		`-D INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`} {
		if !strings.Contains(c.Rules, line+"\n") {
			t.Errorf("%q is not in\n%s", line, c.Rules)
		}
	}
	if strings.Contains(c.Rules, "22") || c.SetsAfter != "destroy KUBE-CLUSTER-IP\ndestroy KUBE-NODE-PORT-TCP\n" {
		t.Errorf("%s%s", c.Rules, c.SetsAfter)
	}
}
