package matrix

import (
	"context"
	"fmt"

	"fairway/kernel"
	"fairway/loop"
	"fairway/proxy"
	"fairway/proxy/iptables"
	"fairway/proxy/nftables"
	"fairway/test/netlab"
	"fairway/trace"
)

// mode is a backend held to the matrix.
type mode struct {
	name  string
	proxy proxy.Mode
	// rules compiles a plan to be traced; nil where another entry traces the same.
	rules func(*proxy.Plan) trace.Rules
	// open makes the backend on a lab's node; stop ends what it started there.
	open func(ctx context.Context, node *netlab.Host) (b loop.Backend, stop func(), err error)
}

// modes is every mode there is, in each variant a kernel may have.
func modes() []mode {
	return []mode{
		{
			name: "nftables", proxy: proxy.NFTables,
			rules: func(p *proxy.Plan) trace.Rules { return nftables.Compile(nil, p) },
			open: func(_ context.Context, node *netlab.Host) (loop.Backend, func(), error) {
				b, problems, err := loop.OpenNFTables(node.NS(), nodeName)
				if err == nil && len(problems) > 0 {
					err = fmt.Errorf("%v", problems)
				}
				return b, func() {}, err
			},
		},
		{
			name: "iptables-nft", proxy: proxy.IPTables,
			rules: func(p *proxy.Plan) trace.Rules { return iptables.Compile(nil, p, iptables.Options{}) },
			open:  openIPTables(kernel.NFTVariant),
		},
		{name: "iptables-legacy", proxy: proxy.IPTables, open: openIPTables(kernel.LegacyVariant)},
	}
}

func openIPTables(v kernel.Variant) func(context.Context, *netlab.Host) (loop.Backend, func(), error) {
	return func(ctx context.Context, node *netlab.Host) (loop.Backend, func(), error) {
		b, problems, err := loop.OpenIPTables(ctx, node.NS(), v, nodeName)
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("%v", problems)
		}
		return b, func() {}, err
	}
}
