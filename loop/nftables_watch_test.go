package loop

import (
	"context"
	"testing"
	"time"

	"fairway/kernel"
	"fairway/proxy/nftables"
)

// TestNFTablesWatch: a flush is mended at the next look; somebody who writes all day
// beside ours is looked after less and less often; a lost element is found then.
func TestNFTablesWatch(t *testing.T) {
	plan, k := nftPlan(t), kernel.NewFakeNFTables(1)
	b := NewNFTables(k)
	if _, err := b.Apply(context.Background(), plan); err != nil {
		t.Fatal(err)
	}
	w := nftWatch{b: b, every: time.Second, quiet: time.Second}
	now := time.Unix(1000, 0)
	look := func(what string, drifted bool) {
		t.Helper()
		now = now.Add(time.Second)
		drift, err, told := w.look(context.Background(), now)
		if err != nil || told != drifted || drifted != (len(drift) > 0) {
			t.Fatalf("%s: %q %v %v, want drift %v", what, drift, err, told, drifted)
		}
		if drifted && !equalKernel(t, k, plan) {
			t.Fatalf("%s: not repaired", what)
		}
	}
	look("nobody wrote", false)
	if err := k.Cleanup(); err != nil {
		t.Fatal(err)
	}
	k.Touched = true
	look("flushed", true)

	lists := 0
	for range 600 { // ten minutes of somebody else's rules
		k.Touched = true
		before := k.Lists
		look("beside", false)
		if k.Lists-before > 1 { // Foreign of the fake lists once
			lists++
		}
	}
	if lists < 5 || lists > 10 {
		t.Errorf("%d audits in ten minutes, want one after 2, 4, 8, … 300 seconds", lists)
	}
	k.Delete(nftables.Compile(nil, plan).Elems()[3])
	k.Touched = true
	for i := 0; ; i++ {
		now = now.Add(time.Second)
		if drift, _, _ := w.look(context.Background(), now); len(drift) == 1 {
			break
		}
		if i > 300 {
			t.Fatal("a lost element was not found in five minutes")
		}
	}
	if err := k.Cleanup(); err != nil {
		t.Fatal(err)
	}
	k.Touched = true
	look("flushed again", true)
}

// TestNFTablesAuditRefused: a Service the kernel refuses does not keep a flushed kernel
// empty.
func TestNFTablesAuditRefused(t *testing.T) {
	plan, k := nftPlan(t), kernel.NewFakeNFTables(1)
	b := NewNFTables(k)
	if _, err := b.Apply(context.Background(), plan); err != nil {
		t.Fatal(err)
	}
	if err := k.Cleanup(); err != nil {
		t.Fatal(err)
	}
	k.Refuse = func(o nftables.Op) error {
		if o.Action == nftables.AddElem && o.Elem.Comment == "shop/cart" {
			return context.DeadlineExceeded
		}
		return nil
	}
	if lines, err := b.Audit(context.Background()); err != nil || len(lines) == 0 {
		t.Fatal(err, lines)
	}
	have, _ := k.List()
	if n := len(have.Elems()); n < len(nftables.Compile(nil, plan).Elems())/2 {
		t.Errorf("only %d elements are back", n)
	}
	k.Refuse = nil
	if _, err := b.Audit(context.Background()); err != nil || !equalKernel(t, k, plan) {
		t.Fatal("not whole again", err)
	}
}
