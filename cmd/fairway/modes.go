package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/iptables"
	"fairway/proxy/nftables"
	"fairway/trace"
)

// modeRoom is what a proxy mode brings to the commands.
type modeRoom struct {
	name proxy.Mode
	// open makes the backend; the error names what the node lacks.
	open func(ctx context.Context, node string) (loop.Backend, []model.Problem, error)
	// text and rules compile a plan: to read, and to trace.
	text  func(*proxy.Plan) string
	rules func(*proxy.Plan) trace.Rules
	// drift compares the kernel with the plan and changes nothing.
	drift func(context.Context, *proxy.Plan) ([]string, error)
	// absent tells whether open failed because the mode never can have run here.
	absent func(error) bool
	// remove takes the mode's rules away, where that is more than the backend's Cleanup.
	remove func(context.Context) error
}

// modes is the one list of proxy modes.
func modes() []modeRoom {
	return []modeRoom{
		{
			name: proxy.NFTables,
			open: func(_ context.Context, node string) (loop.Backend, []model.Problem, error) {
				return loop.OpenNFTables(0, node)
			},
			text:   func(p *proxy.Plan) string { return nftables.Compile(nil, p).Text() },
			rules:  func(p *proxy.Plan) trace.Rules { return nftables.Compile(nil, p) },
			drift:  driftNFTables,
			absent: func(error) bool { return false },
		},
		{
			name: proxy.IPTables,
			open: func(ctx context.Context, node string) (loop.Backend, []model.Problem, error) {
				return loop.OpenIPTables(ctx, 0, "", node)
			},
			text: func(plan *proxy.Plan) string {
				p := iptables.Compile(nil, plan, iptables.Options{})
				return p.Text(false) + p.Text(true)
			},
			rules:  func(p *proxy.Plan) trace.Rules { return iptables.Compile(nil, p, iptables.Options{}) },
			drift:  driftIPTables,
			absent: func(err error) bool { return errors.Is(err, kernel.ErrNoIPTables) },
			remove: removeIPTables,
		},
		ipvsRoom(),
		userspaceRoom(),
		ebpfRoom(),
	}
}

// modeOf finds a mode by its name.
func modeOf(name string) (modeRoom, error) {
	for _, m := range modes() {
		if string(m.name) == name {
			return m, nil
		}
	}
	return modeRoom{}, fmt.Errorf("%q is not %s", name, modeNames())
}

func modeNames() string {
	var names []string
	for _, m := range modes() {
		names = append(names, string(m.name))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func openMode(ctx context.Context, name, node string) (loop.Backend, []model.Problem, error) {
	m, err := modeOf(name)
	if err != nil {
		return nil, nil, err
	}
	return m.open(ctx, node)
}

func driftNFTables(_ context.Context, plan *proxy.Plan) ([]string, error) {
	have, err := kernel.NewNFTables(0).List()
	if err != nil {
		return nil, err
	}
	return nftables.Diff(have, nftables.Compile(nil, plan)).Lines(), nil
}

func driftIPTables(ctx context.Context, plan *proxy.Plan) ([]string, error) {
	var lines []string
	served := 0
	for _, v6 := range []bool{false, true} {
		hand, err := kernel.FindIPTables(ctx, v6, 0, "")
		if err != nil {
			continue
		}
		served++
		have, err := hand.List(ctx)
		if err != nil {
			return nil, err
		}
		liberal, err := hand.Liberal()
		if err != nil {
			return nil, err
		}
		want := iptables.Compile(nil, plan, iptables.Options{Liberal: liberal, Counters: have.Counting(v6)})
		lines = append(lines, iptables.Drift(have, want, v6)...)
	}
	if served == 0 {
		return nil, errors.New("iptables-save is not installed (Debian package iptables)")
	}
	return lines, nil
}
