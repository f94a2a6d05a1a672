package kernel

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Forget makes conntrack forget what IPVS has translated, of every protocol, less what
// went to others, and returns how many flows. Once another mode serves their clients, what
// they send next is that mode's to translate, and NAT looks only at the first packet of a
// flow. IPVS writes the reply's source into a flow (ip_vs_update_conntrack), and not the
// bit by which NAT knows its own.
func (k *IPVS) Forget(ctx context.Context, others map[netip.AddrPort]bool) (int, error) {
	return forget(ctx, k.netns, unix.AF_UNSPEC, func(attrs []byte) bool {
		f := readFlow(attrs)
		return f.orig.dst != f.reply.src && f.status&ipsDstNAT == 0 && !others[f.orig.dst]
	})
}
