package matrix

import (
	"context"
	"fmt"
	"slices"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ebpf"
	"fairway/proxy/iptables"
	"fairway/proxy/ipvs"
	"fairway/proxy/nftables"
	"fairway/proxy/userspace"
	"fairway/test/netlab"
	"fairway/trace"
)

// mode is a backend held to the matrix.
type mode struct {
	name  string
	proxy proxy.Mode
	// settings is what is asked of the mode besides a node's settings.
	settings func(*proxy.Config)
	// rules compiles a plan to be traced; nil where another entry traces the same.
	rules func(*proxy.Plan) trace.Rules
	// open makes the backend on a lab's node; stop ends what it started there. It is nil
	// where only the trace is held to the matrix.
	open func(ctx context.Context, lab *netlab.Lab) (b loop.Backend, stop func(), err error)
	// missing tells what the kernel lacks for a mode that few kernels have.
	missing func() error
}

// modes is every mode there is, in each variant a kernel may have.
func modes() []mode {
	return []mode{
		{
			name: "nftables", proxy: proxy.NFTables,
			rules: func(p *proxy.Plan) trace.Rules { return nftables.Compile(nil, p) },
			open: func(_ context.Context, lab *netlab.Lab) (loop.Backend, func(), error) {
				b, problems, err := loop.OpenNFTables(lab.Node.NS(), nodeName)
				return b, func() {}, all(problems, err)
			},
		},
		{
			name: "iptables-nft", proxy: proxy.IPTables,
			rules: func(p *proxy.Plan) trace.Rules { return iptables.Compile(nil, p, iptables.Options{}) },
			open:  openIPTables(kernel.NFTVariant),
		},
		{name: "iptables-legacy", proxy: proxy.IPTables, open: openIPTables(kernel.LegacyVariant)},
		{
			name: "nftables-relay", proxy: proxy.NFTables,
			settings: func(c *proxy.Config) { c.LocalhostRelay = true },
			rules: func(p *proxy.Plan) trace.Rules {
				return userspace.Relayed{Rules: nftables.Compile(nil, p), Listeners: userspace.Localhost(nil, p)}
			},
		},
		{
			name: "userspace", proxy: proxy.Userspace,
			rules: func(p *proxy.Plan) trace.Rules { return userspace.Compile(nil, p, true, userspace.Carry{}) },
			open:  openUserspace,
		},
		{
			name: "ebpf", proxy: proxy.EBPF,
			rules: func(p *proxy.Plan) trace.Rules { return ebpf.Compile(nil, p) },
			open:  openEBPF,
		},
		{
			name: "ipvs", proxy: proxy.IPVS,
			rules: func(p *proxy.Plan) trace.Rules { return ipvs.Compile(nil, p) },
			open: func(ctx context.Context, lab *netlab.Lab) (loop.Backend, func(), error) {
				b, problems, err := loop.OpenIPVS(ctx, lab.Node.NS(), nodeName, kernel.AnyVariant)
				return b, func() {}, all(problems, err)
			},
			missing: netlab.MissingIPVS,
		},
	}
}

// config is a node's settings as the mode reads them.
func (m mode) config(n Node) proxy.Config {
	c := n.config().WithMode(m.proxy)
	if m.settings != nil {
		m.settings(&c)
	}
	return c
}

// plan makes the mode's Plan of a node with a Service for each variant. A mode without
// SCTP says so of every Service; nothing else may be wrong.
func (m mode) plan(n Node, variants []variant) (*proxy.Plan, error) {
	snap, problems := snapshot(variants)
	plan, more := proxy.New(nil, snap, m.config(n))
	problems = slices.DeleteFunc(append(problems, more...), func(p model.Problem) bool {
		return p.Reason == "ProtocolNotServed" && m.proxy.Traits().NoSCTP
	})
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %v", n, problems)
	}
	return plan, nil
}
