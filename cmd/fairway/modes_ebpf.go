package main

import (
	"context"
	"errors"
	"path/filepath"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ebpf"
	"fairway/trace"
)

// ebpfRoom is the eBPF mode: programs at the node's interfaces and sockets.
func ebpfRoom() modeRoom {
	return modeRoom{
		name: proxy.EBPF,
		open: func(_ context.Context, node string) (loop.Backend, []model.Problem, error) {
			return loop.OpenEBPF(0, "", node)
		},
		text:   func(p *proxy.Plan) string { return ebpf.Compile(nil, p).Text() },
		rules:  func(p *proxy.Plan) trace.Rules { return ebpf.Compile(nil, p) },
		drift:  driftEBPF,
		absent: func(err error) bool { return errors.Is(err, kernel.ErrNoBPF) },
		// Whatever name the node had: there is one to a machine.
		remove: func(context.Context) error {
			return kernel.NewEBPF(kernel.EBPFOptions{Dir: filepath.Dir(kernel.EBPFDir(""))}).Cleanup()
		},
	}
}

// driftEBPF compares the maps, and looks where programs are missing.
func driftEBPF(_ context.Context, plan *proxy.Plan) ([]string, error) {
	hand := kernel.NewEBPF(kernel.EBPFOptions{Dir: kernel.EBPFDir(plan.Config.Node)})
	have, err := hand.List()
	if err != nil {
		return nil, err
	}
	local := *plan
	if local.Config.LocalAddrs, err = kernel.LocalAddrs(); err != nil {
		return nil, err
	}
	missing, err := hand.Missing()
	return append(ebpf.Diff(have, ebpf.Compile(nil, &local)).Lines(), missing...), err
}
