package kernel_test

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"
	"fairway/test/story"
)

func nft(t *testing.T, node *netlab.Host, args ...string) {
	t.Helper()
	err := node.Do(func() error {
		out, err := exec.Command("nft", args...).CombinedOutput()
		if err != nil {
			t.Errorf("nft %v: %s", args, out)
		}
		return err
	})
	if err != nil {
		t.FailNow()
	}
}

// TestNFTablesDrift: what somebody changes behind our back is found by the audit, said
// in nft's words, and put right.
func TestNFTablesDrift(t *testing.T) {
	requireKernel(t)
	s := story.Load(t, "testdata/mixed.txtar")
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b := nftablesMode().open(t, lab.Node)
	apply(t, b, plan)
	good := nftList(t, lab.Node)
	if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Fatalf("audit of an untouched kernel: %v %q", err, lines)
	}
	for _, damage := range []string{
		"delete element ip fairway services { 10.96.0.10 . udp . 53 }",
		"delete element ip fairway endpoints { 10.96.0.10 . udp . 53 . 1:1 }",
		"add element ip fairway cluster-ips { 10.96.99.99 }",
		"flush chain ip fairway internal-3", "flush chain ip fairway to-endpoints", "delete element ip fairway classes { 1003:10 }",
		"insert rule ip fairway services tcp dport 53 drop",
		"add chain ip fairway mine",
		"add set ip fairway extra { type ipv4_addr; }",
		"flush set ip fairway source-ranges",
		"delete table ip fairway",
	} {
		nft(t, lab.Node, damage)
		lines, err := b.Audit(context.Background())
		if err != nil || len(lines) == 0 {
			t.Fatalf("%s: audit: %v, %d lines", damage, err, len(lines))
		}
		if now := nftList(t, lab.Node); now != good {
			t.Fatalf("%s: not repaired by %s\n--- now\n%s--- before\n%s", damage, strings.Join(lines, "\n"), now, good)
		}
		if lines, _ := b.Audit(context.Background()); len(lines) > 0 {
			t.Errorf("%s: the second audit finds %q", damage, lines)
		}
	}
	sendAll(t, lab, plan, s.Packets[:2])
}

// TestNFTablesAffinityKept: a client keeps its endpoint while others come and go, and
// gets another when its own goes.
func TestNFTablesAffinityKept(t *testing.T) {
	requireKernel(t)
	s := story.Load(t, "testdata/mixed.txtar")
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b := nftablesMode().open(t, lab.Node)
	apply(t, b, plan)
	p := packet.Packet{Src: netip.MustParseAddr("203.0.113.3"), Dst: netip.MustParseAddrPort("10.96.0.40:80"), Proto: packet.TCP}
	reach := func() netip.AddrPort {
		o, err := lab.Send(p, answer)
		if err != nil || !o.Reached() {
			t.Fatalf("%s: %s %v", p, o, err)
		}
		return o.Endpoint
	}
	mine := reach()
	for _, keep := range [][]string{{"10.244.1.5", "10.244.1.6"}, {"10.244.1.5", "10.244.2.7"}, {"10.244.1.6", "10.244.2.7"}, {"10.244.1.5", "10.244.1.6", "10.244.2.7"}} {
		if !slices.Contains(keep, mine.Addr().String()) {
			continue
		}
		apply(t, b, planWith(s, "cart", keep))
		for range 5 {
			if now := reach(); now != mine {
				t.Fatalf("with endpoints %v the client went from %s to %s", keep, mine, now)
			}
		}
	}
	rest := slices.DeleteFunc([]string{"10.244.1.5", "10.244.1.6", "10.244.2.7"}, func(a string) bool { return a == mine.Addr().String() })
	apply(t, b, planWith(s, "cart", rest))
	if now := reach(); now == mine {
		t.Fatalf("the client is still sent to %s, which is gone", mine)
	}
}

// planWith is the story's plan with other endpoints for one Service.
func planWith(s *story.Story, service string, addrs []string) *proxy.Plan {
	objects := s.Objects
	objects.EndpointSlices = slices.Clone(objects.EndpointSlices)
	for i, sl := range objects.EndpointSlices {
		if sl.Labels["kubernetes.io/service-name"] != service {
			continue
		}
		sl = sl.DeepCopy()
		kept := sl.Endpoints[:0]
		for _, e := range sl.Endpoints {
			if slices.Contains(addrs, e.Addresses[0]) {
				kept = append(kept, e)
			}
		}
		sl.Endpoints = kept
		objects.EndpointSlices[i] = sl
	}
	snap, _ := model.Build(nil, objects)
	plan, _ := proxy.New(nil, snap, s.Config)
	return plan
}

// TestNFTablesNoGap: while endpoints change many times, no connect fails: every Change is
// one transaction.
func TestNFTablesNoGap(t *testing.T) {
	requireKernel(t)
	noGap(t, nftablesMode(), 300, 60, 2)
}
