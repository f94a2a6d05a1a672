package iptables

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/test/random"
)

// TestRuleCount is kube-proxy's own count of rules with a cluster CIDR: nat
// 5 + S(2+3E), filter 4 and one for each Service without endpoints.
func TestRuleCount(t *testing.T) {
	for _, c := range []struct{ services, endpoints, nat, filter int }{
		{0, 0, 5, 4}, {1, 0, 5, 5}, {1, 1, 10, 4}, {1, 2, 13, 4}, {1, 10, 37, 4}, {10, 0, 5, 14}, {10, 1, 55, 4}, {10, 2, 85, 4}, {10, 10, 325, 4},
	} {
		got := Compile(nil, cluster(c.services, c.endpoints), Options{})
		if n := countRules(got, Nat); n != c.nat {
			t.Errorf("%d Services of %d: %d nat rules, want %d", c.services, c.endpoints, n, c.nat)
		}
		if n := countRules(got, Filter); n != c.filter {
			t.Errorf("%d Services of %d: %d filter rules, want %d", c.services, c.endpoints, n, c.filter)
		}
	}
}

// cluster is a plan of so many ClusterIP Services with so many endpoints each.
func cluster(services, endpoints int) *proxy.Plan {
	p := &proxy.Plan{Config: proxy.Config{Node: "node1", MasqueradeBit: 14, LocalhostNodePorts: true,
		NodeIPs: addrs("172.30.0.11"), Detector: proxy.Detector{Mode: proxy.DetectClusterCIDR, CIDRs: prefixes("10.244.0.0/16")}}}
	for i := range services {
		sp := &proxy.ServicePort{Port: 80, HasEndpoints: endpoints > 0, ClusterIP: addrs(fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250))[0],
			Key: proxy.Key{Service: model.Name{Namespace: "default", Name: fmt.Sprintf("svc%05d", i)}, Proto: "tcp"}}
		for e := range endpoints {
			n := i*endpoints + e
			sp.Cluster = append(sp.Cluster, proxy.Endpoint{Addr: addrPort(fmt.Sprintf("10.%d.%d.%d:8080", 128+n/62500, n/250%250, 1+n%250))})
		}
		p.Ports = append(p.Ports, sp)
	}
	return p
}

func countRules(p *Program, table string) int {
	n := 0
	for _, t := range p.family(false).tables() {
		for _, c := range t.Chains {
			if t.Name == table && !builtin(c.Name) {
				n += len(c.Rules)
			}
		}
	}
	return n
}

// sorted puts chains in name order, which the kernel does not keep.
func sorted(p *Program, v6 bool) []Table {
	var out []Table
	for _, t := range p.family(v6).tables() {
		chains := slices.DeleteFunc(slices.Clone(t.Chains), func(c Chain) bool { return builtin(c.Name) && len(c.Rules) == 0 })
		for i := range chains {
			if len(chains[i].Rules) == 0 {
				chains[i].Rules = nil
			}
		}
		slices.SortFunc(chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, Table{t.Name, append([]Chain{}, chains...)})
	}
	return out
}

// TestDiffArrives: from any cluster to any other, applied to an in-memory kernel whole
// or in batches, the listing is the wanted Program, and a second Diff finds nothing.
func TestDiffArrives(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		cfg, objects := randomSettings(r), random.Cluster(r)
		kernel, err := Parse("*filter\n-A INPUT -p tcp -m multiport --dports 1,2 -j OTHER\n:OTHER\nCOMMIT\n", seed%2 == 1)
		if err != nil {
			t.Fatal(err)
		}
		have, v6 := kernel, seed%2 == 1
		var plan *proxy.Plan
		for step := range 5 {
			if r.IntN(5) == 0 {
				cfg = randomSettings(r)
			}
			plan = planFor(plan, objects, cfg)
			objects = random.Change(r, objects)
			want := Compile(have, plan, Options{})
			c := Diff(have, want, v6)
			for in := range batches(c, 1+r.IntN(4)) {
				if kernel, err = kernel.Apply(in, v6); err != nil {
					t.Fatalf("seed %d step %d: %v\n%s", seed, step, err, in)
				}
			}
			if lines := Drift(kernel, want, v6); len(lines) > 0 || !Diff(kernel, want, v6).Empty() {
				t.Fatalf("seed %d step %d: kernel differs\n%s", seed, step, strings.Join(lines, "\n"))
			}
			if c := Diff(want, want, v6); !c.Empty() {
				t.Fatalf("a Program differs from itself: %s", c.Text())
			}
			have = want
		}
		if !strings.Contains(kernel.Text(v6), "--dports 1,2 -j OTHER") {
			t.Error("somebody else's rule is gone")
		}
	}
}

func batches(c *Change, size int) iter.Seq[string] {
	if size == 1 {
		return slices.Values([]string{c.Text()})
	}
	return c.Batches(size, model.Name{})
}

// TestReadBack: a Program printed and read is the same Program.
func TestReadBack(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := Compile(nil, planFor(nil, random.Cluster(r), randomSettings(r)), Options{Counters: seed%3 == 0})
		for _, v6 := range []bool{false, true} {
			again, err := Parse(p.Text(v6), v6)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := sorted(p, v6), sorted(again, v6); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d: read back differs\n%s", seed, p.Text(v6))
			}
		}
	}
}

// TestDiffIsSmall: one more endpoint of one Service among many rewrites the chains of
// that Service and no other, and no chain that all share.
func TestDiffIsSmall(t *testing.T) {
	plan := cluster(300, 2)
	have := Compile(nil, plan, Options{})
	next := *plan
	next.Ports = slices.Clone(plan.Ports)
	grown := *plan.Ports[7]
	grown.Cluster = append(slices.Clone(grown.Cluster), proxy.Endpoint{Addr: addrPort("10.244.9.9:8080")})
	next.Ports[7] = &grown
	want := Compile(have, &next, Options{})
	c := Diff(have, want, false)
	if text := c.Text(); len(c.Groups) != 1 || strings.Contains(text, kubeServices) || strings.Count(text, "\n:") != 2 {
		t.Errorf("%d groups\n%s", len(c.Groups), text)
	}
	next.Ports = slices.Delete(slices.Clone(plan.Ports), 7, 8)
	c = Diff(have, Compile(have, &next, Options{}), false)
	if text := c.Text(); strings.Count(text, "-X ") != 3 || strings.Count(text, "\n-D KUBE-SERVICES ") != 1 || strings.Contains(text, ":KUBE-SERVICES") {
		t.Errorf("a deleted Service of two endpoints leaves three chains and a rule to delete:\n%s", text)
	}
	c = Diff(Compile(have, &next, Options{}), have, false)
	if text := c.Text(); strings.Count(text, "\n-I KUBE-SERVICES ") != 1 || strings.Contains(text, ":KUBE-SERVICES") {
		t.Errorf("a new Service adds one rule to what all share:\n%s", text)
	}
}

// TestLargeCluster: above a thousand endpoints the chains of Services carry no
// comments; the shared chains still do.
func TestLargecluster(t *testing.T) {
	text := Compile(nil, cluster(101, 10), Options{}).Text(false)
	if strings.Contains(text, "svc00000 ->") || strings.Contains(text, "--comment default/svc00000 ") {
		t.Error("comments in a large cluster")
	}
	if !strings.Contains(text, `"default/svc00000 cluster IP"`) {
		t.Error("no comment in KUBE-SERVICES")
	}
}

// TestKubeletFirewall: with localhost NodePorts off the chain is the kubelet's, and
// what it holds stays.
func TestKubeletFirewall(t *testing.T) {
	plan := cluster(1, 1)
	plan.Config.LocalhostNodePorts = false
	want := Compile(nil, plan, Options{})
	kernel, err := Parse("*filter\n:KUBE-FIREWALL\n-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\nCOMMIT\n", false)
	if err != nil {
		t.Fatal(err)
	}
	if kernel, err = kernel.Apply(Diff(kernel, want, false).Text(), false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(kernel.Text(false), "0x8000") {
		t.Error("the kubelet's rule is gone")
	}
}

// TestUncheckedNames: names from files never become other rules.
func TestUncheckedNames(t *testing.T) {
	plan := cluster(1, 1)
	plan.Ports[0].Service.Name = "x\" -j ACCEPT\n-A INPUT -j \\ACCEPT é"
	text := Compile(nil, plan, Options{}).Text(false)
	if strings.Contains(text, "\n-A INPUT -j ACCEPT") || strings.Contains(text, `x" -j`) {
		t.Error(text)
	}
	if _, err := Parse(text, false); err != nil {
		t.Error(err)
	}
}
