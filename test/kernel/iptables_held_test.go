package kernel_test

import (
	"context"
	"strings"
	"testing"
)

// TestIPTablesForeignJump: somebody's rule that jumps to a Service's chain holds up
// neither its deletion nor other Services, only the empty chain, which goes when the rule
// is gone.
func TestIPTablesForeignJump(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, tool string) {
		s, plan, lab := mixed(t, m)
		b := m.open(t, lab.Node)
		before := planWithout(s, "dns")
		apply(t, b, before)
		var held []string
		for _, line := range strings.Split(m.list(t, lab.Node), "\n") {
			w := strings.Fields(line)
			if len(w) > 3 && w[0] == "iptables" && (strings.HasPrefix(w[2], "KUBE-SVC-") || strings.HasPrefix(w[2], "KUBE-SEP-")) && strings.Contains(line, "shop/cart") {
				held = append(held, w[2])
			}
		}
		if len(held) < 2 {
			t.Fatalf("shop/cart has chains %v", held)
		}
		svc, sep := held[len(held)-1], held[0]
		onNode(t, lab.Node, tool+" -t nat -N FOREIGN")
		onNode(t, lab.Node, tool+" -t nat -A FOREIGN -p tcp -m multiport --dports 1,2 -g "+svc)
		onNode(t, lab.Node, tool+" -t nat -A FOREIGN -j "+sep)
		next := planWithout(s, "cart") // and dns is new
		for range 2 {
			problems, err := b.Apply(context.Background(), next)
			if err != nil || len(problems) != 2 {
				t.Fatalf("%v %v", err, problems)
			}
			for _, p := range problems {
				if !strings.Contains(p.Message, "shop/cart") || !strings.Contains(p.Message, "FOREIGN") {
					t.Errorf("the problem does not say whose chain it is and who jumps to it: %s", p)
				}
			}
			if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
				t.Errorf("audit: %v %q", err, lines)
			}
		}
		now := m.list(t, lab.Node)
		for _, chain := range []string{svc, sep} {
			if !strings.Contains(now, ":"+chain) || strings.Contains(now, "-A "+chain) {
				t.Errorf("chain %s is gone or has rules:\n%s", chain, now)
			}
		}
		sendAll(t, lab, next, s.Packets)
		onNode(t, lab.Node, tool+" -t nat -F FOREIGN")
		if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
			t.Errorf("audit: %v %q", err, lines)
		}
		if now := m.list(t, lab.Node); strings.Contains(now, svc) || strings.Contains(now, sep) {
			t.Errorf("still there:\n%s", now)
		}
		apply(t, b, plan)
		sendAll(t, lab, plan, s.Packets[:4])
	})
}
