package loop

import (
	"context"
	"errors"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/test/story"
)

func nftPlan(t *testing.T) *proxy.Plan {
	t.Helper()
	plan, _ := story.Load(t, "../test/kernel/testdata/mixed.txtar").Plan()
	return plan
}

func equalKernel(t *testing.T, k *kernel.FakeNFTables, plan *proxy.Plan) bool {
	t.Helper()
	have, err := k.List()
	if err != nil {
		t.Fatal(err)
	}
	return nftables.Diff(have, nftables.Compile(nil, plan)).Empty()
}

// TestNFTablesRefusal: a Service the kernel refuses is a Problem on it, the rest is
// applied, and the Service follows when it is accepted.
func TestNFTablesRefusal(t *testing.T) {
	plan, k := nftPlan(t), kernel.NewFakeNFTables(1)
	b := NewNFTables(k)
	no := errors.New("no")
	k.Refuse = func(o nftables.Op) error {
		if o.Action == nftables.AddElem && o.Elem.Comment == "shop/cart" {
			return no
		}
		return nil
	}
	problems, err := b.Apply(context.Background(), plan)
	if err != nil || len(problems) != 1 || problems[0].Object.String() != "Service shop/cart" || problems[0].Reason != "RulesRefused" {
		t.Fatalf("%v %v", err, problems)
	}
	have, _ := k.List()
	missing := nftables.Diff(have, nftables.Compile(nil, plan)).Text()
	for _, line := range strings.Split(strings.TrimSpace(missing), "\n") {
		if strings.Contains(line, "element") && strings.Contains(line, " 10.96.0.10 ") {
			t.Errorf("another Service's part is missing: %s", line)
		}
	}
	k.Refuse = nil
	if problems, err = b.Apply(context.Background(), plan); err != nil || len(problems) > 0 || !equalKernel(t, k, plan) {
		t.Fatalf("after it is accepted: %v %v", err, problems)
	}
}

// TestNFTablesAllRefused: when everything is refused it is the kernel's fault, and no
// Service's.
func TestNFTablesAllRefused(t *testing.T) {
	plan, k := nftPlan(t), kernel.NewFakeNFTables(1)
	b := NewNFTables(k)
	k.Refuse = func(o nftables.Op) error {
		if o.Action == nftables.AddElem {
			return errors.New("no memory")
		}
		return nil
	}
	problems, err := b.Apply(context.Background(), plan)
	if err == nil || len(problems) > 0 || !strings.Contains(err.Error(), "no memory") {
		t.Fatalf("%v %v", err, problems)
	}
}

// TestNFTablesQuiet: the kernel is listed once, at the start, and written only when
// something changed; a second process writes nothing at all.
func TestNFTablesQuiet(t *testing.T) {
	plan, k := nftPlan(t), kernel.NewFakeNFTables(1)
	for range 2 {
		b := NewNFTables(k)
		for range 3 {
			if _, err := b.Apply(context.Background(), plan); err != nil {
				t.Fatal(err)
			}
		}
	}
	if k.Applies != 1 || k.Lists != 2 {
		t.Fatalf("%d writes and %d listings, want 1 and 2", k.Applies, k.Lists)
	}
}

// TestNFTablesAuditRepairs: what is missing is named and put back.
func TestNFTablesAuditRepairs(t *testing.T) {
	plan, k := nftPlan(t), kernel.NewFakeNFTables(1)
	b := NewNFTables(k)
	if _, err := b.Apply(context.Background(), plan); err != nil {
		t.Fatal(err)
	}
	gone := nftables.Compile(nil, plan).Elems()[3]
	k.Delete(gone)
	lines, err := b.Audit(context.Background())
	if err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0], "add element ip fairway "+gone.Kind.String()) || !equalKernel(t, k, plan) {
		t.Fatalf("%v %q", err, lines)
	}
	if lines, err = b.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Fatalf("second audit: %v %q", err, lines)
	}
}

// TestNFTablesWithoutIPv6: only the IPv4 table is written.
func TestNFTablesWithoutIPv6(t *testing.T) {
	plan, _ := story.Load(t, "../test/kernel/testdata/hairpin.txtar").Plan()
	k := kernel.NewFakeNFTables(1)
	b := NewNFTables(k)
	b.noV6 = true
	if problems, err := b.Apply(context.Background(), plan); err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if have, _ := k.List(); have.V6 || !have.V4 || len(have.Elems()) == 0 {
		t.Fatalf("tables: v4 %v, v6 %v, %d elements", have.V4, have.V6, len(have.Elems()))
	}
}
