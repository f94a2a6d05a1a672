package loop

import (
	"context"
	"log/slog"
	"time"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
)

// OpenEBPF makes the backend for a network namespace (a descriptor, 0 for the current
// one) after asking the kernel for every feature it needs. cgroup is the cgroup2
// directory that holds the node's processes, empty for the whole machine's.
func OpenEBPF(netns int, cgroup, node string) (*EBPF, []model.Problem, error) {
	if err := kernel.ProbeEBPF(); err != nil {
		return nil, nil, err
	}
	if cgroup == "" {
		var err error
		if cgroup, err = kernel.FindCgroup2(); err != nil {
			return nil, nil, err
		}
	}
	return NewEBPF(kernel.NewEBPF(kernel.EBPFOptions{NetNS: netns, Dir: kernel.EBPFDir(node), Cgroup: cgroup})), nil, nil
}

// Watch puts the programs on interfaces as they appear, tells the maps of the node's new
// addresses, and every so often looks whether everything is still attached, until ctx
// ends.
func (b *EBPF) Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error)) {
	go b.look(ctx, every, repaired)
	for ctx.Err() == nil {
		err := b.hand.Follow(ctx, func() { b.newLinks() }, func() { b.newAddrs(ctx) })
		if err != nil {
			slog.Warn("interfaces are not followed for a moment", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			b.newLinks()
		}
	}
}

func (b *EBPF) newLinks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.attached {
		return
	}
	lines, err := b.hand.Attach(b.want.Detector, false)
	if err != nil {
		slog.Warn("a new interface is not served", "err", err)
	}
	if len(lines) > 0 {
		slog.Debug("new interfaces", "attached", lines)
	}
}

// newAddrs compiles the last plan again with the addresses the node has now.
func (b *EBPF) newAddrs(ctx context.Context) {
	b.newLinks() // what packets leave with
	addrs, err := kernel.LocalAddrs()
	if err != nil {
		slog.Warn("reading local addresses", "err", err)
		return
	}
	b.mu.Lock()
	var plan *proxy.Plan
	if b.plan != nil {
		p := *b.plan
		p.Config.LocalAddrs = addrs
		plan = &p
	}
	b.mu.Unlock()
	if plan == nil {
		return
	}
	if _, err := b.Apply(ctx, plan); err != nil {
		slog.Warn("the node's new addresses are not served", "err", err)
	}
}

func (b *EBPF) look(ctx context.Context, every time.Duration, repaired func(drift []string, err error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		if !b.attached {
			b.mu.Unlock()
			continue
		}
		lines, err := b.hand.Attach(b.want.Detector, true)
		b.mu.Unlock()
		if len(lines) > 0 || err != nil {
			repaired(lines, err)
		}
	}
}
