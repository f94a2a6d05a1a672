package loop

import (
	"context"
	"errors"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy/iptables"
)

// chainWith is the chain of a listing with a rule that has the words.
func chainWith(t *testing.T, f *kernel.FakeIPTables, chain, words string) string {
	t.Helper()
	listed, _ := f.List(context.Background())
	for _, line := range strings.Split(listed.Text(f.V6), "\n") {
		if w := strings.Fields(line); strings.HasPrefix(line, "-A "+chain) && strings.Contains(line, words) {
			return w[1]
		}
	}
	t.Fatalf("no chain %s with %q", chain, words)
	return ""
}

func foreign(t *testing.T, f *kernel.FakeIPTables, lines string) {
	t.Helper()
	if err := f.Restore(context.Background(), "*nat\n"+lines+"\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
}

func without(text, service string) string {
	return strings.ReplaceAll(text, "metadata: {name: "+service+",", "metadata: {name: other-"+service+",")
}

// TestIPTablesForeignJump: a chain others jump to is emptied and left, the rest of the
// change is in force at once, and the chain goes at the first audit that finds it free.
func TestIPTablesForeignJump(t *testing.T) {
	ctx := context.Background()
	v4 := &kernel.FakeIPTables{}
	b := NewIPTables(v4, nil, iptables.Options{})
	apply := func(text string) []model.Problem {
		t.Helper()
		problems, err := b.Apply(ctx, planOf(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return problems
	}
	audit := func() {
		t.Helper()
		if lines, err := b.Audit(ctx); err != nil || len(lines) > 0 {
			t.Fatalf("audit: %v %q", err, lines)
		}
	}
	apply(without(twoServices, "web"))
	held := chainWith(t, v4, "KUBE-SVC-", "shop/sticky ->")
	foreign(t, v4, ":FOREIGN - [0:0]\n-A FOREIGN -p tcp -m multiport --dports 1,2 -j "+held)
	next := without(twoServices, "sticky")
	for range 3 {
		problems := apply(next)
		if len(problems) != 1 {
			t.Fatalf("problems %v", problems)
		}
		for _, word := range []string{held, "shop/sticky", "FOREIGN", "iptables -t nat -S FOREIGN"} {
			if !strings.Contains(problems[0].Message, word) {
				t.Errorf("%q does not say %s", problems[0].Message, word)
			}
		}
		listed, _ := v4.List(ctx)
		text := listed.Text(false)
		if !strings.Contains(text, "shop/web:http -> 10.244.2.7:8080") || strings.Contains(text, "-A "+held) || !strings.Contains(text, ":"+held) {
			t.Fatal(text)
		}
		audit()
	}
	if problems := apply(twoServices); len(problems) != 0 { // in use again
		t.Errorf("problems %v", problems)
	}
	chainWith(t, v4, held, "shop/sticky")
	if problems := apply(next); len(problems) != 1 {
		t.Errorf("problems %v", problems)
	}
	foreign(t, v4, ":FOREIGN - [0:0]")
	audit()
	if problems := apply(next); len(problems) != 0 {
		t.Errorf("problems %v", problems)
	}
	listed, _ := v4.List(ctx)
	if text := listed.Text(false); strings.Contains(text, held) || !strings.Contains(text, ":FOREIGN") {
		t.Error(text)
	}
}

// TestIPTablesDeletionRefused: when no listing says why a chain cannot be deleted, the
// rest is in force all the same.
func TestIPTablesDeletionRefused(t *testing.T) {
	ctx := context.Background()
	v4 := &kernel.FakeIPTables{}
	b := NewIPTables(v4, nil, iptables.Options{})
	if _, err := b.Apply(ctx, planOf(t, without(twoServices, "web"))); err != nil {
		t.Fatal(err)
	}
	v4.Fail = func(input string) error {
		if strings.Contains(input, "\n-X KUBE-SVC-") {
			return errors.New("CHAIN_DEL failed (Device or resource busy)")
		}
		return nil
	}
	next := planOf(t, without(twoServices, "sticky"))
	problems, err := b.Apply(ctx, next)
	if err != nil || len(problems) != 2 || !strings.Contains(problems[0].Message, "busy") { // KUBE-SVC and KUBE-SEP
		t.Fatalf("%v %v", problems, err)
	}
	chainWith(t, v4, "KUBE-SVC-", "shop/web:http -> 10.244.2.7:8080")
	v4.Fail = nil
	if _, err := b.Audit(ctx); err != nil {
		t.Fatal(err)
	}
	if problems, err := b.Apply(ctx, next); err != nil || len(problems) != 0 {
		t.Errorf("%v %v", problems, err)
	}
	if lines := drift(t, v4, next); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
}
