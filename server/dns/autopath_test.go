package dnsserver

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"fairway/dns"
	"fairway/kube"
	"fairway/model"

	wire "github.com/miekg/dns"
)

// walkers is a cluster in which 127.0.53.30 is a Pod's address.
const walkers = `
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: other}
spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: here, namespace: default}
spec: {clusterIP: 10.96.0.8, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: asks, namespace: default}
spec: {dnsPolicy: %s, containers: [{name: c, image: i}]%s}
status: {phase: %s, podIPs: [{ip: 127.0.53.30}]}
`

// TestAutoPath: a Pod's first question is answered with what its search list leads to, A
// and AAAA by the same step, and nobody else's is.
func TestAutoPath(t *testing.T) {
	var asked atomic.Int64
	up := upstreamServer(t, internet(t, &asked))
	zone := func(policy, more, phase string) *dns.Zone {
		o, problems := kube.Decode("walkers", []byte(fmt.Sprintf(walkers, policy, more, phase)))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		snap, _ := model.Build(nil, o)
		cfg := dns.DefaultConfig()
		cfg.AutoPath, cfg.HostSearch = true, []string{"corp.example"}
		z, _ := dns.Build(nil, snap, cfg)
		return z
	}
	s, addr := serve(t, zone("ClusterFirst", "", "Running"), Config{Forward: forwardTo(up)})
	from := func(client, name string, qtype uint16, tcp bool) string {
		m := exchange(t, addr, query{name: name, qtype: qtype, from: client, net: map[bool]string{true: "tcp", false: "udp"}[tcp]})
		if m.Question[0].Name != name {
			t.Errorf("%s: the question came back as %s", name, m.Question[0].Name)
		}
		text := wire.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			text += " " + wire.TypeToString[rr.Header().Rrtype]
			if c, ok := rr.(*wire.CNAME); ok {
				text += fmt.Sprintf("(%s, %d)", c.Target, c.Hdr.Ttl)
			}
		}
		return text
	}
	const pod, stranger = "127.0.53.30", "127.0.53.31"
	for _, c := range []struct {
		client, name string
		qtype        uint16
		want         string
	}{
		{pod, "here.default.svc.cluster.local.", wire.TypeA, "NOERROR A"},
		{pod, "web.other.default.svc.cluster.local.", wire.TypeA, "NOERROR CNAME(web.other.svc.cluster.local., 0) A"},
		{pod, "web.other.default.svc.cluster.local.", wire.TypeAAAA, "NOERROR CNAME(web.other.svc.cluster.local., 0)"},
		{pod, "web.other.svc.default.svc.cluster.local.", wire.TypeA, "NOERROR CNAME(web.other.svc.cluster.local., 0) A"},
		{pod, "www.example.com.default.svc.cluster.local.", wire.TypeA, "NOERROR CNAME(www.example.com., 0) CNAME(web.example.com., 30) A"},
		{pod, "www.example.com.default.svc.cluster.local.", wire.TypeAAAA, "NOERROR CNAME(www.example.com., 0)"},
		{pod, "x.gone.example.com.default.svc.cluster.local.", wire.TypeA, "NXDOMAIN"},
		{pod, "web.other.default.svc.cluster.local.", wire.TypeMX, "NXDOMAIN"},
		{pod, "web.gone.svc.cluster.local.", wire.TypeA, "NXDOMAIN"},
		{pod, "here.other.svc.cluster.local.", wire.TypeA, "NXDOMAIN"},
		{stranger, "web.other.default.svc.cluster.local.", wire.TypeA, "NXDOMAIN"},
		{stranger, "www.example.com.default.svc.cluster.local.", wire.TypeA, "NXDOMAIN"},
	} {
		for _, tcp := range []bool{false, true} {
			if got := from(c.client, c.name, c.qtype, tcp); got != c.want {
				t.Errorf("%s asks for %s %s (tcp %v): %s, want %s", c.client, c.name, wire.TypeToString[c.qtype], tcp, got, c.want)
			}
		}
	}
	for _, other := range [][3]string{{"Default", "", "Running"}, {"None", "", "Running"}, {"ClusterFirst", ", hostNetwork: true", "Running"},
		{"ClusterFirst", ", dnsConfig: {searches: [own.example]}", "Running"}, {"ClusterFirst", "", "Succeeded"}} {
		s.SetZone(zone(other[0], other[1], other[2]))
		if got := from(pod, "web.other.default.svc.cluster.local.", wire.TypeA, false); got != "NXDOMAIN" {
			t.Errorf("%v: %s", other, got)
		}
	}
	if z := zone("ClusterFirst", "", "Running"); z.AutoPath(dns.Question{Name: "a.default.svc.cluster.local.", Type: dns.TypeA}, netip.MustParseAddr("127.0.53.31")) != nil {
		t.Error("a stranger has a search list")
	}
}
