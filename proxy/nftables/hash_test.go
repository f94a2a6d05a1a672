package nftables

import (
	"fmt"
	"net/netip"
	"testing"

	"fairway/proxy"
)

func endpointList(n int) []proxy.Endpoint {
	var out []proxy.Endpoint
	for i := range n {
		out = append(out, proxy.Endpoint{Addr: netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", i/250, 1+i%250))})
	}
	return out
}

// TestMaglev: every endpoint gets about its share, and one that goes moves few others.
func TestMaglev(t *testing.T) {
	for _, n := range []int{2, 3, 10, 50, 200} {
		list := endpointList(n)
		size := maglevSize(n)
		slots := maglev(list, size)
		count := make([]int, n)
		for _, i := range slots {
			count[i]++
		}
		for i, c := range count {
			if share := float64(c) * float64(n) / float64(size); share < 0.9 || share > 1.1 {
				t.Errorf("%d endpoints: number %d gets %.2f of its share", n, i, share)
			}
		}
		if maglevSize(n-1) != size {
			continue
		}
		moved := 0
		for i, k := range maglev(list[:n-1], size) {
			if slots[i] != n-1 && k != slots[i] {
				moved++
			}
		}
		if moved > size/6 {
			t.Errorf("%d endpoints: one less moves %d of %d slots of the others", n, moved, size)
		}
	}
}

// TestClasses: no two uses share a number, and none has a bit that a queueing discipline
// would choose a band by.
func TestClasses(t *testing.T) {
	seen := map[uint32]use{}
	for what := useNoEndpoints; what <= useNodePortLocal; what++ {
		for _, pick := range []Pick{Randomly, BySource} {
			for _, n := range []uint32{0, 1, 2, 10, 4093, 4094} {
				for _, m := range []uint32{0, 1, 7, 4093} {
					u := use{what: what, n: n, m: m, pick: pick}
					if what < useInternal && (n > 0 || m > 0 || pick != Randomly) {
						continue
					}
					id := u.class()
					if o, taken := seen[id]; taken || id&15 != 0 || !u.fits() {
						t.Errorf("%+v has %x as %+v", u, id, o)
					}
					seen[id] = u
				}
			}
		}
	}
}
