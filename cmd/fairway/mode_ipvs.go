package main

import (
	"context"
	"errors"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ipvs"
	"fairway/trace"
)

func ipvsRoom() modeRoom {
	return modeRoom{
		name: proxy.IPVS,
		open: func(ctx context.Context, node string) (loop.Backend, []model.Problem, error) {
			b, problems, err := loop.OpenIPVS(ctx, 0, node, "")
			if err != nil {
				return nil, nil, err
			}
			return b, problems, nil
		},
		text: func(plan *proxy.Plan) string {
			p := ipvs.Compile(nil, plan)
			return p.Text(false) + p.Text(true)
		},
		rules:  func(p *proxy.Plan) trace.Rules { return ipvs.Compile(nil, p) },
		drift:  driftIPVS,
		absent: func(err error) bool { return errors.Is(err, kernel.ErrNoIPVS) },
		remove: func(ctx context.Context) error { return loop.RemoveIPVS(ctx, 0) },
	}
}

// tune gives a backend its settings of the configuration. Only the nftables mode pays for
// counting; most have none at all.
func tune(b loop.Backend, cfg config) error {
	if n, ok := b.(*loop.NFTables); ok && !cfg.raw.Proxy.ServiceCounters {
		n.CountFlows(false)
	}
	v, ok := b.(*loop.IPVS)
	if !ok {
		return nil
	}
	p := cfg.raw.Proxy.IPVS
	exclude, err := prefixes("proxy.ipvs.excludeCIDRs", p.ExcludeCIDRs)
	if err != nil {
		return err
	}
	return v.Tune(loop.IPVSOptions{
		// An address announced by one node may not be answered for by all that hold it.
		StrictARP: p.StrictARP || cfg.roles["lb"], Exclude: exclude,
		TCPTimeout: p.TCPTimeout.Duration, TCPFinTimeout: p.TCPFinTimeout.Duration, UDPTimeout: p.UDPTimeout.Duration,
	})
}

func driftIPVS(ctx context.Context, plan *proxy.Plan) ([]string, error) {
	hand := kernel.LookIPVS(ctx, 0)
	defer hand.Close()
	want := ipvs.Compile(nil, plan)
	var lines []string
	for _, v6 := range []bool{false, true} {
		have, err := hand.List(ctx, v6)
		if err != nil {
			return nil, err
		}
		lines = append(lines, ipvs.Drift(have, want, ipvs.Draining{})...)
	}
	return lines, nil
}
