package iptables_test

import (
	"fmt"
	"testing"

	"fairway/proxy/iptables"
	"fairway/test/story"
)

// TestCounts: a flow is counted once, whether it came to the cluster address or from
// outside, and kube-proxy's numbers of rules come out.
func TestCounts(t *testing.T) {
	s, err := story.Parse("counts", []byte(`
-- config.yaml --
mode: iptables
detectMode: ClusterCIDR
detectCIDRs: [10.0.0.0/8]
-- objects.yaml --
apiVersion: v1
kind: Service
metadata: {name: nginx-service-clusterip, namespace: net-test}
spec: {clusterIP: 10.96.0.10, ports: [{port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: net-test, labels: {kubernetes.io/service-name: nginx-service-clusterip}}
addressType: IPv4
ports: [{name: "", port: 80}]
endpoints: [{addresses: [10.244.1.1]}, {addresses: [10.244.1.2]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	plan, problems := s.Plan()
	if len(problems) > 0 {
		t.Fatal(story.Problems(problems))
	}
	p := iptables.Compile(nil, plan, iptables.Options{})
	counts := p.Counts(`*nat
:KUBE-SVC-7QI22HNU2ECHCQD4 - [0:0]
[9:540] -A KUBE-SERVICES -d 10.96.0.10/32 -j KUBE-SVC-7QI22HNU2ECHCQD4
[9:540] -A KUBE-SVC-7QI22HNU2ECHCQD4 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ
[3:180] -A KUBE-SVC-7QI22HNU2ECHCQD4 -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAAAAAAAAAAAAAA
[4:240] -A KUBE-SVC-7QI22HNU2ECHCQD4 -j KUBE-SEP-BBBBBBBBBBBBBBBB
[2:120] -A KUBE-SVL-7QI22HNU2ECHCQD4 -j KUBE-SEP-BBBBBBBBBBBBBBBB
[8:480] -A KUBE-SVC-SOMEBODYELSES0000 -j KUBE-SEP-BBBBBBBBBBBBBBBB
COMMIT
`, false)
	if got := fmt.Sprint(len(counts)); got != "1" || counts[0].Connections != 9 || counts[0].Service.Name != "nginx-service-clusterip" || counts[0].Measured {
		t.Errorf("counted %+v, want 9 flows of nginx-service-clusterip", counts)
	}
	// kube-proxy: 5 + S × (2 + 3 E) rules in nat.
	if n := p.RuleCounts(false)["nat"]; n != 5+1*(2+3*2) {
		t.Errorf("%d rules in nat, want 13", n)
	}
	if n := iptables.Written("*filter\n:A - [0:0]\n-A A -j X\nCOMMIT\n*nat\n-A B -j X\n-A B -j Y\nCOMMIT\n"); n["filter"] != 1 || n["nat"] != 2 {
		t.Errorf("written %v", n)
	}
}
