package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/proxy"
	"fairway/proxy/iptables"
	"fairway/test/story"
)

const twoServices = `
-- config.yaml --
localhostNodePorts: true
-- objects.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, "fd00:96::10"]
  ports: [{name: http, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: shop}
spec:
  clusterIP: 10.96.0.11
  sessionAffinity: ClientIP
  ports: [{port: 81}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.5]}, {addresses: [10.244.2.7]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sticky-1, namespace: shop, labels: {kubernetes.io/service-name: sticky}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.244.1.6]}]
`

func planOf(t *testing.T, text string) *proxy.Plan {
	t.Helper()
	s, err := story.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	plan, problems := s.Plan()
	if len(problems) > 0 {
		t.Fatal(story.Problems(problems))
	}
	return plan
}

func drift(t *testing.T, f *kernel.FakeIPTables, plan *proxy.Plan) []string {
	t.Helper()
	listed, err := f.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return iptables.Drift(listed, iptables.Compile(nil, plan, iptables.Options{}), f.V6)
}

func TestIPTablesApply(t *testing.T) {
	ctx := context.Background()
	v4, v6 := &kernel.FakeIPTables{}, &kernel.FakeIPTables{V6: true}
	b := NewIPTables(v4, v6, iptables.Options{})
	plan := planOf(t, twoServices)
	if problems, err := b.Apply(ctx, plan); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if !v4.Localnet() {
		t.Error("route_localnet is off with localhost NodePorts on")
	}
	if lines := append(drift(t, v4, plan), drift(t, v6, plan)...); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
	v4.Seen()
	if _, err := b.Apply(ctx, planOf(t, twoServices)); err != nil {
		t.Fatal(err)
	}
	if inputs, lists := v4.Seen(); lists != 0 || len(inputs) != 0 {
		t.Errorf("the same plan again: %d lists, writes %v", lists, inputs)
	}
	if err := b.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*kernel.FakeIPTables{v4, v6} {
		left, _ := f.List(ctx)
		if text := left.Text(f.V6); strings.Contains(text, "KUBE") {
			t.Errorf("left by Cleanup:\n%s", text)
		}
	}
}

// TestIPTablesRefusedService: a Service the kernel refuses does not stop the others,
// is reported, and is served as soon as the kernel takes it.
func TestIPTablesRefusedService(t *testing.T) {
	ctx := context.Background()
	v4 := &kernel.FakeIPTables{Refuse: "-m recent"}
	b := NewIPTables(v4, nil, iptables.Options{})
	plan := planOf(t, twoServices)
	problems, err := b.Apply(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 1 || problems[0].Object.Name.Name != "sticky" || problems[0].Reason != "RulesRefused" {
		t.Errorf("problems %v", problems)
	}
	listed, _ := v4.List(ctx)
	text := listed.Text(false)
	if !strings.Contains(text, "shop/web:http -> 10.244.2.7:8080") || strings.Contains(text, "shop/sticky") || strings.Contains(text, "PROBE") {
		t.Error(text)
	}
	v4.Seen()
	if problems, err = b.Apply(ctx, plan); err != nil || len(problems) != 1 {
		t.Error(problems, err)
	}
	if inputs, _ := v4.Seen(); len(inputs) != 0 {
		t.Error("tried again without reason")
	}
	v4.Refuse = ""
	if _, err := b.Audit(ctx); err != nil {
		t.Fatal(err)
	}
	if lines := drift(t, v4, plan); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
}

// TestIPTablesRefusedKeepsOld: rules the kernel took of a Service stay in force while it
// refuses what they should become.
func TestIPTablesRefusedKeepsOld(t *testing.T) {
	ctx := context.Background()
	v4 := &kernel.FakeIPTables{}
	b := NewIPTables(v4, nil, iptables.Options{})
	if _, err := b.Apply(ctx, planOf(t, strings.ReplaceAll(twoServices, "sessionAffinity: ClientIP", "sessionAffinity: None"))); err != nil {
		t.Fatal(err)
	}
	v4.Refuse = "-m recent"
	plan := planOf(t, twoServices)
	for range 2 {
		problems, err := b.Apply(ctx, plan)
		if err != nil || len(problems) != 1 || problems[0].Object.Name.Name != "sticky" || !strings.Contains(problems[0].Message, "earlier rules stay") {
			t.Fatalf("%v %v", problems, err)
		}
		listed, _ := v4.List(ctx)
		if text := listed.Text(false); !strings.Contains(text, `"shop/sticky cluster IP"`) || !strings.Contains(text, "shop/sticky -> ") || strings.Contains(text, "PROBE") {
			t.Fatal(text)
		}
	}
	v4.Refuse = ""
	if _, err := b.Audit(ctx); err != nil {
		t.Fatal(err)
	}
	if lines := drift(t, v4, plan); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
}

func TestIPTablesNothingWorks(t *testing.T) {
	v4 := &kernel.FakeIPTables{Fail: func(string) error { return errors.New("Permission denied (you must be root)") }}
	b := NewIPTables(v4, nil, iptables.Options{})
	problems, err := b.Apply(context.Background(), planOf(t, twoServices))
	if err == nil || len(problems) != 0 || !strings.Contains(err.Error(), "you must be root") {
		t.Error(problems, err)
	}
	if inputs, _ := v4.Seen(); len(inputs) > 3 {
		t.Errorf("%d tries", len(inputs))
	}
}

// TestIPTablesCanary: flushed tables are noticed and written again.
func TestIPTablesCanary(t *testing.T) {
	ctx := context.Background()
	v4 := &kernel.FakeIPTables{}
	b := NewIPTables(v4, nil, iptables.Options{})
	plan := planOf(t, twoServices)
	if _, err := b.Apply(ctx, plan); err != nil {
		t.Fatal(err)
	}
	if ok, err := b.intact(ctx); !ok || err != nil {
		t.Fatal(ok, err)
	}
	v4.Flush()
	if ok, _ := b.intact(ctx); ok {
		t.Error("the flush went unnoticed")
	}
	lines, err := b.Audit(ctx)
	if err != nil || len(lines) < 10 {
		t.Errorf("%d lines %v", len(lines), err)
	}
	if lines := drift(t, v4, plan); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
}

// TestIPTablesFaults: with every third write failing, some after one table, the end is
// the same.
func TestIPTablesFaults(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		v4 := &kernel.FakeIPTables{Size: 1 + r.IntN(3)}
		v4.Fail = func(string) error {
			if r.IntN(3) == 0 {
				return fmt.Errorf("another app is holding the xtables lock")
			}
			return nil
		}
		b := NewIPTables(v4, nil, iptables.Options{})
		other := strings.ReplaceAll(twoServices, "10.244.2.7", "10.244.2.8")
		var plan *proxy.Plan
		for range 4 {
			plan = planOf(t, []string{twoServices, other, strings.Replace(other, "name: web-1", "name: web-2", 1)}[r.IntN(3)])
			b.Apply(ctx, plan)
		}
		v4.Fail = nil
		b.Audit(ctx)
		if _, err := b.Apply(ctx, plan); err != nil {
			t.Fatal(err)
		}
		if lines := drift(t, v4, plan); len(lines) > 0 {
			t.Errorf("seed %d:\n%s", seed, strings.Join(lines, "\n"))
		}
	}
}
