package kernel_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"fairway/loop"
	"fairway/packet"
	"fairway/test/story"
)

// TestIPTablesAccounts: packets to NodePorts on loopback are counted where kube-proxy
// counts them, the objects go with the rules, and outside packets to loopback get
// nowhere.
func TestIPTablesAccounts(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, _ string) {
		s := story.Load(t, "../../proxy/nftables/testdata/schedulers.txtar")
		m.settings(&s.Config)
		plan, _ := s.Plan()
		lab := newLab(t, plan, s.Packets)
		b := m.open(t, lab.Node).(*loop.IPTables)
		apply(t, b, plan)
		p := packet.Packet{Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddrPort("127.0.0.1:30080"), Proto: packet.TCP, Local: true}
		for range 3 {
			if o, err := lab.Send(p, answer); err != nil || !o.Reached() {
				t.Fatalf("%s: %s %v", p, o, err)
			}
		}
		invalid, localhost, counted, err := b.Accounts()
		if err != nil || !counted || localhost < 3 {
			t.Errorf("counted %v %v: %d packets to loopback, %d invalid ones", counted, err, localhost, invalid)
		}
		if list := m.list(t, lab.Node); !strings.Contains(list, "ct_state_invalid_dropped_pkts") {
			t.Error("KUBE-FORWARD does not count")
		}
		if err := b.Cleanup(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, localhost, _, err := b.Accounts(); err != nil || localhost != 0 {
			t.Errorf("after cleanup: %d %v", localhost, err)
		}
	})
}
