package nftables_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/test/story"
)

// stories are this room's own and the Plan's: the latter for the oracle's sake.
func stories(t *testing.T) []*story.Story {
	return append(story.Glob(t, "testdata/*.txtar"), story.Glob(t, "../testdata/*.txtar")...)
}

func local(plan *proxy.Plan) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return a.IsLoopback() || slices.Contains(plan.Config.LocalAddrs, a) || slices.Contains(plan.Config.NodeIPs, a)
	}
}

func TestStories(t *testing.T) {
	for _, s := range stories(t) {
		t.Run(s.Path, func(t *testing.T) {
			s.Config = s.Config.WithMode(proxy.NFTables)
			plan, _ := s.Plan()
			p := nftables.Compile(nil, plan)
			base := nftables.Compile(nil, &proxy.Plan{Config: plan.Config})
			s.Check(t, "nft-base", base.Text())
			s.Check(t, "nft", nftables.Diff(base, p).Text())
			for _, pkt := range s.Packets {
				got, want := p.Trace(pkt, local(plan)), plan.Answer(pkt)
				if !got.Equal(want) {
					t.Errorf("%s\n got %s\nwant %s\n%v", pkt, got, want, got.Steps)
				}
			}
			s.Check(t, "nft-trace", traceText(p, plan, s.Packets))
		})
	}
}

func traceText(p *nftables.Program, plan *proxy.Plan, packets []packet.Packet) string {
	out := ""
	for _, pkt := range packets {
		v := p.Trace(pkt, local(plan))
		out += pkt.String() + " => " + v.String() + "\n"
		for _, s := range v.Steps {
			out += "  " + s.Where + ": " + s.What + "\n"
		}
	}
	return out
}
