package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"fairway/proxy"
)

func endpoints(n int) []proxy.Endpoint {
	var out []proxy.Endpoint
	for i := range n {
		out = append(out, proxy.Endpoint{Addr: netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", i/200, i%200+1))})
	}
	return out
}

// TestMaglev: shares are even, and an endpoint that goes moves hardly any flow of the
// others.
func TestMaglev(t *testing.T) {
	for _, n := range []int{2, 3, 10, 32, 100, 300} {
		list := endpoints(n)
		size := tableSize(n)
		table := maglev(list, size)
		share := make([]int, n)
		for _, i := range table {
			share[i]++
		}
		for i, s := range share {
			if s < size/n-1 || s > size/n+1 {
				t.Errorf("%d endpoints: the share of %d is %d of %d", n, i, s, size)
			}
		}
		fewer := maglev(list[:n-1], size)
		moved := 0
		for at, i := range table {
			if int(i) != n-1 && fewer[at] != i {
				moved++
			}
		}
		if moved > size/4 {
			t.Errorf("%d endpoints, one goes: %d of %d places of others moved", n, moved, size)
		}
	}
}
