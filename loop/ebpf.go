package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ebpf"
)

// EBPF programs the eBPF mode.
type EBPF struct {
	mu   sync.Mutex
	hand ebpfHand
	plan *proxy.Plan   // the one last applied
	have *ebpf.Program // what the maps hold, nil when not known
	want *ebpf.Program // what was compiled last
	// attached: the programs of this process are in force.
	attached bool
}

// ebpfHand is kernel.EBPF or a fake.
type ebpfHand interface {
	// Apply makes a Change; after an error the maps may hold a part of it.
	Apply(*ebpf.Change) error
	List() (*ebpf.Program, error)
	// Attach puts the programs where they are missing, and tells where that was; all looks
	// also where they were put before.
	Attach(d proxy.Detector, all bool) ([]string, error)
	Forget([]proxy.Flow) (int, error)
	Counters() (map[uint64]kernel.EBPFCount, error)
	DropCounters(keep func(uint64) bool) error
	Follow(ctx context.Context, links, addrs func()) error
	Cleanup() error
}

// NewEBPF makes the backend of the eBPF mode. Maps that an earlier run left are taken
// over: only differences are written, and the programs are replaced one by one.
func NewEBPF(hand ebpfHand) *EBPF { return &EBPF{hand: hand} }

// Mode is the name of the mode.
func (b *EBPF) Mode() string { return string(proxy.EBPF) }

// Apply compiles plan, brings the maps to it and attaches the programs: no packet meets
// half a state. At the first start the programs come first, and serve nobody until the
// maps' last element, the settings; what an earlier run left goes on until the maps are
// right, and then its programs are replaced.
func (b *EBPF) Apply(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	want := ebpf.Compile(b.want, plan)
	b.want = want
	if err := b.know(); err != nil {
		return nil, err
	}
	if !b.have.InForce() {
		if err := b.attach(want); err != nil {
			return nil, err
		}
	}
	problems, err := b.bring(ctx, want)
	if err != nil {
		return problems, err
	}
	if err := b.attach(want); err != nil {
		return problems, err
	}
	b.forget(b.plan, plan)
	b.plan = plan
	return problems, nil
}

func (b *EBPF) attach(want *ebpf.Program) error {
	if b.attached {
		return nil
	}
	_, err := b.hand.Attach(want.Detector, true)
	b.attached = err == nil
	return err
}

// bring writes what is missing. When the kernel refuses it as a whole, it is written
// Service by Service.
func (b *EBPF) bring(ctx context.Context, want *ebpf.Program) ([]model.Problem, error) {
	change := ebpf.Diff(b.have, want)
	if change.Empty() {
		b.have = want
		return nil, nil
	}
	err := b.hand.Apply(change)
	if err == nil {
		b.have = want
		return nil, nil
	}
	return b.piecemeal(ctx, want, err)
}

func (b *EBPF) know() error {
	if b.have != nil {
		return nil
	}
	have, err := b.hand.List()
	if err != nil {
		return fmt.Errorf("ebpf: list: %w", err)
	}
	b.have = have
	return nil
}

// piecemeal writes each Service by itself, so that one refused Service does not hold up
// the rest. What the maps hold is not known afterwards unless all went well.
func (b *EBPF) piecemeal(ctx context.Context, want *ebpf.Program, cause error) ([]model.Problem, error) {
	b.have = nil
	if err := b.know(); err != nil {
		return nil, errors.Join(cause, err)
	}
	change := ebpf.Diff(b.have, want)
	b.have = nil
	var problems []model.Problem
	failed := 0
	for _, g := range change.Groups {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := b.hand.Apply(&ebpf.Change{Groups: []ebpf.Group{g}})
		switch {
		case err == nil:
		case g.Service.Name.Name == "":
			return nil, fmt.Errorf("ebpf: %w", err)
		default:
			failed++
			problems = append(problems, model.Problem{Object: g.Service, Reason: "RulesRefused",
				Message: fmt.Sprintf("the kernel refused this Service's map elements, its earlier ones stay in force; it will be tried again: %v", err)})
		}
	}
	if failed > 1 && failed == len(change.Groups) {
		return nil, fmt.Errorf("ebpf: every Service was refused, first %w", cause)
	}
	// What is not wanted goes even so: it makes room for what was refused.
	if err := b.hand.Apply(&ebpf.Change{Delete: change.Delete}); err != nil {
		return problems, fmt.Errorf("ebpf: %w", err)
	}
	if failed == 0 {
		b.have = want
	}
	return problems, nil
}

// forget deletes the flows of UDP endpoints that are gone, at the start (old is nil) those
// the last run left, too. The table may be large, so it
// is done beside the loop; TCP is left alone on purpose.
func (b *EBPF) forget(old, new *proxy.Plan) {
	stale := proxy.StaleFlows(old, new)
	if len(stale) == 0 {
		return
	}
	go func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		n, err := b.hand.Forget(stale)
		if err != nil {
			slog.Warn("forgetting UDP flows of endpoints that are gone", "err", err)
			return
		}
		slog.Debug("UDP flows of endpoints that are gone are forgotten", "frontends", len(stale), "flows", n)
	}()
}

// Audit compares the maps with the program last applied, looks whether the programs are
// attached everywhere, and repairs. The lines say what was needed.
func (b *EBPF) Audit(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.want == nil {
		return nil, nil
	}
	b.have = nil
	if err := b.know(); err != nil {
		return nil, err
	}
	lines := ebpf.Diff(b.have, b.want).Lines()
	if _, err := b.bring(ctx, b.want); err != nil {
		return lines, fmt.Errorf("ebpf: repair: %w", err)
	}
	more, err := b.hand.Attach(b.want.Detector, true)
	lines = append(lines, more...)
	if err != nil {
		return lines, fmt.Errorf("ebpf: repair: %w", err)
	}
	known := b.want.Services()
	err = b.hand.DropCounters(func(id uint64) bool { _, ok := known[id]; return ok })
	return lines, err
}

// Cleanup removes programs and maps.
func (b *EBPF) Cleanup(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have, b.want, b.plan, b.attached = nil, nil, nil, false
	return b.hand.Cleanup()
}

// Counters tells what went through each Service port.
func (b *EBPF) Counters(context.Context) ([]Count, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.want == nil {
		return nil, nil
	}
	counted, err := b.hand.Counters()
	if err != nil {
		return nil, err
	}
	var out []Count
	for id, key := range b.want.Services() {
		if c, ok := counted[id]; ok {
			out = append(out, Count{Key: key, Connections: c.Connections, Measured: true, BytesIn: c.BytesIn, BytesOut: c.BytesOut})
		}
	}
	return out, nil
}
