package proxy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairway/proxy"
	"fairway/test/story"
)

// dnsService is a UDP Service with a NodePort; %s are its target port and endpoints.
const dnsService = `
-- objects.yaml --
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec:
  type: NodePort
  clusterIP: 10.96.0.53
  ports: [{name: dns, port: 53, protocol: UDP, nodePort: 30053}, {name: tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-1, namespace: kube-system, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{name: dns, port: %s, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
endpoints: [%s]
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: default}
spec: {clusterIP: 10.96.0.99, ports: [{port: 514, protocol: UDP}]}
`

func dnsPlan(t *testing.T, port, endpoints string) *proxy.Plan {
	t.Helper()
	s, err := story.Parse("dns", fmt.Appendf(nil, dnsService, port, endpoints))
	if err != nil {
		t.Fatal(err)
	}
	plan, problems := s.Plan()
	if len(problems) > 0 {
		t.Fatal(story.Problems(problems))
	}
	return plan
}

func flows(list []proxy.Flow) string {
	var out []string
	for _, f := range list {
		if f.Within.IsValid() {
			out = append(out, "all of "+f.Within.String())
			continue
		}
		out = append(out, fmt.Sprintf("%s keep %v", f.Dst, f.Keep))
	}
	return strings.Join(out, "; ")
}

func TestStaleFlows(t *testing.T) {
	const (
		a, b = "{addresses: [10.244.1.1]}", "{addresses: [10.244.1.2]}"
		// b is on its way out but still serves: its flows end by themselves.
		bEnding = "{addresses: [10.244.1.2], conditions: {ready: false, serving: true, terminating: true}}"
		bGone   = "{addresses: [10.244.1.2], conditions: {ready: false, serving: false, terminating: true}}"
	)
	none := dnsPlan(t, "5353", "")
	one, two := dnsPlan(t, "5353", a), dnsPlan(t, "5353", a+", "+b)
	empty, err := story.Parse("empty", nil)
	if err != nil {
		t.Fatal(err)
	}
	nothing, _ := empty.Plan()
	ranges := *nothing
	ranges.Config.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	for _, c := range []struct {
		name     string
		old, new *proxy.Plan
		want     string
	}{
		{"nothing changed", two, two, ""},
		{"start with known ranges", nil, &ranges, "all of 10.96.0.0/16; all of fd00:96::/112"},
		{"an endpoint more", one, two, ""},
		{"an endpoint less", two, one, "0.0.0.0:30053 keep [10.244.1.1:5353]; 10.96.0.53:53 keep [10.244.1.1:5353]"},
		{"the last endpoint gone", one, none, "0.0.0.0:30053 keep []; 10.96.0.53:53 keep []"},
		{"the first endpoint", none, one, "0.0.0.0:30053 keep [10.244.1.1:5353]; 10.96.0.53:53 keep [10.244.1.1:5353]"},
		{"terminating but serving", two, dnsPlan(t, "5353", a+", "+bEnding), ""},
		{"no longer serving", two, dnsPlan(t, "5353", a+", "+bGone), "0.0.0.0:30053 keep [10.244.1.1:5353]; 10.96.0.53:53 keep [10.244.1.1:5353]"},
		{"another target port", one, dnsPlan(t, "9953", a), "0.0.0.0:30053 keep [10.244.1.1:9953]; 10.96.0.53:53 keep [10.244.1.1:9953]"},
		{"Service deleted", one, nothing, "0.0.0.0:30053 keep []; 10.96.0.53:53 keep []"},
		{"Service made", nothing, one, "0.0.0.0:30053 keep [10.244.1.1:5353]; 10.96.0.53:53 keep [10.244.1.1:5353]"},
		{"start", nil, one, "0.0.0.0:30053 keep [10.244.1.1:5353]; 10.96.0.53:53 keep [10.244.1.1:5353]; 10.96.0.99:514 keep []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := proxy.StaleFlows(c.old, c.new)
			text := flows(got)
			if c.old != nil { // the other Service is built anew in each plan, and never changes
				for _, f := range got {
					if f.Dst.Port() == 514 && c.name != "Service deleted" {
						t.Errorf("flows of a Service without change: %s", text)
					}
				}
				text = strings.TrimSuffix(text, "; 10.96.0.99:514 keep []")
			}
			if text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}
