package kube

import (
	"strings"
	"testing"

	"fairway/model"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.0/30":            "192.0.2.0-192.0.2.3",
		"192.0.2.7/30":            "192.0.2.4-192.0.2.7",
		" 192.0.2.10-192.0.2.20 ": "192.0.2.10-192.0.2.20",
		"192.0.2.10 - 192.0.2.20": "192.0.2.10-192.0.2.20",
		"192.0.2.9":               "192.0.2.9-192.0.2.9",
		"192.0.2.9/32":            "192.0.2.9-192.0.2.9",
		"fd00::/126":              "fd00::-fd00::3",
		"fd00::1-fd00::ff":        "fd00::1-fd00::ff",
		"::ffff:192.0.2.1":        "192.0.2.1-192.0.2.1",
		"192.0.2.20-192.0.2.10":   "ends before",
		"192.0.2.1-fd00::1":       "mixes",
		"192.0.2.0/33":            "not a CIDR",
		"::ffff:192.0.2.0/120":    "IPv6 form",
		"fe80::1%eth0":            "no CIDR",
		"127.0.0.1-127.0.0.9":     "loopback",
		"224.0.0.0/24":            "multicast",
		"0.0.0.0/0":               "unspecified",
		"":                        "no CIDR",
		"a-b":                     "no CIDR",
		"192.0.2.1-":              "no CIDR",
	} {
		r, err := ParseRange(text)
		got := r.From.String() + "-" + r.To.String()
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || !strings.Contains(got, want) {
			t.Errorf("ParseRange(%q) = %s, want %s", text, got, want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"192.0.2.0/24", "192.0.2.1-192.0.2.9", "fd00::/64", "::-::1", "1.2.3.4", "-", "/", "::ffff:1.2.3.4/128", "fe80::1%a-fe80::2%b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			return
		}
		if !r.From.IsValid() || r.From.BitLen() != r.To.BitLen() || r.To.Less(r.From) || !r.Contains(r.From) || !r.Contains(r.To) {
			t.Fatalf("ParseRange(%q) = %v", s, r)
		}
		again, err := ParseRange(r.From.String() + "-" + r.To.String())
		if err != nil || again != r {
			t.Fatalf("%q: printed and read again: %v, %v", s, again, err)
		}
	})
}

const poolFile = `apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: first, namespace: metallb-system, labels: {zone: a}}
spec:
  addresses: [192.0.2.0/28, nonsense, "fd00::1-fd00::9"]
  autoAssign: false
  avoidBuggyIPs: true
  serviceAllocation:
    priority: 50
    namespaces: [shop]
    namespaceSelectors: [{matchLabels: {team: a}}]
    serviceSelectors: [{matchExpressions: [{key: app, operator: In, values: [web]}]}, {matchExpressions: [{key: x, operator: Like}]}]
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: broken}
spec: {addresses: 7}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: lan, namespace: metallb-system}
spec:
  ipAddressPools: [first]
  nodeSelectors: [{matchLabels: {kubernetes.io/hostname: n1}}]
  interfaces: [eth0]
`

func TestDecodeMetalLB(t *testing.T) {
	o, problems := Decode("pools.yaml", []byte(poolFile))
	if len(o.Pools) != 1 || len(o.L2) != 1 {
		t.Fatalf("pools %v, advertisements %v", o.Pools, o.L2)
	}
	p := o.Pools[0]
	if p.Name.String() != "metallb-system/first" || len(p.Ranges) != 2 || p.AutoAssign || !p.AvoidBuggyIPs || p.Priority != 50 || !p.Restricted {
		t.Errorf("pool read as %+v", p)
	}
	if len(p.ServiceSelectors) != 2 || !p.ServiceSelectors[0].Matches(map[string]string{"app": "web"}) || p.ServiceSelectors[1].Matches(map[string]string{"x": "1"}) {
		t.Errorf("service selectors read as %+v", p.ServiceSelectors)
	}
	ad := o.L2[0]
	if ad.Pools[0] != "first" || ad.Interfaces[0] != "eth0" || !ad.NodeSelectors[0].Matches(map[string]string{"kubernetes.io/hostname": "n1"}) {
		t.Errorf("advertisement read as %+v", ad)
	}
	wantProblems(t, problems, "InvalidRange spec.addresses[1]", "InvalidSelector spec.serviceAllocation.serviceSelectors[1].matchExpressions", "UnreadableObject spec")
}

func wantProblems(t *testing.T, got []model.Problem, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("problems %v, want %v", got, want)
	}
	for i, p := range got {
		if s := p.Reason + " " + p.Field; s != want[i] {
			t.Errorf("problem %d is %s (%s), want %s", i, s, p.Message, want[i])
		}
	}
}
