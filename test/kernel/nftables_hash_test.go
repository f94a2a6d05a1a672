package kernel_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairway/packet"
	"fairway/proxy/nftables"
	"fairway/test/story"
)

// TestNFTablesHash: the endpoint a trace foretells for a client, where its address
// decides, is the one the kernel sends it to.
func TestNFTablesHash(t *testing.T) {
	requireKernel(t)
	s := story.Load(t, "../../proxy/nftables/testdata/maglev.txtar")
	plan, _ := s.Plan()
	var packets []packet.Packet
	for i := range 12 {
		for _, p := range []string{"203.0.113.%d > 10.96.0.62:80", "2001:db8:113::%d > [fd00:96::62]:80"} {
			src, dst, _ := strings.Cut(fmt.Sprintf(p, 2+i), " > ")
			packets = append(packets, packet.Packet{Proto: packet.TCP, Src: netip.MustParseAddr(src), Dst: netip.MustParseAddrPort(dst)})
		}
	}
	lab := newLab(t, plan, packets)
	apply(t, nftablesMode().open(t, lab.Node), plan)
	program := nftables.Compile(nil, plan)
	for _, p := range packets {
		want := ""
		for _, step := range program.Trace(p, func(netip.Addr) bool { return false }).Steps {
			if strings.HasPrefix(step.What, "probability 1 ") {
				want = strings.TrimPrefix(step.Where, "endpoint ")
			}
		}
		o, err := lab.Send(p, answer)
		if err != nil || o.Endpoint.String() != want {
			t.Errorf("%s: %s (%v), the trace says %s", p, o, err, want)
		}
	}
}
