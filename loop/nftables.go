package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/nftables"
)

// NFTables programs the nftables mode.
type NFTables struct {
	mu   sync.Mutex
	hand nftHand
	have *nftables.Program // what the kernel holds, nil when not known
	want *nftables.Program // what was compiled last
	noV6 bool              // the kernel cannot do IPv6
	opts nftables.Options

	counted atomic.Pointer[nftables.Program] // the last want, when it counts
}

// nftHand is kernel.NFTables or its fake.
type nftHand interface {
	// Apply makes a Change; after an error the kernel may hold a part of it.
	Apply(*nftables.Change) error
	// ListFor lists what is to be compared with want, and with that only.
	ListFor(want *nftables.Program) (*nftables.Program, error)
	Cleanup() error
	// Foreign tells whether somebody else wrote since the last call, and whether a
	// wanted table is gone.
	Foreign(v4, v6 bool) (wrote, gone bool, err error)
	// Counts reads the counters of frontends.
	Counts(v4, v6 bool, visit func(e nftables.Elem, packets uint64)) error
}

// NewNFTables makes the backend of the nftables mode. The kernel is listed before the
// first Apply, so rules of an earlier run stay in force and only differences are
// written.
func NewNFTables(hand nftHand) *NFTables { return &NFTables{hand: hand} }

// CountFlows says before the first Apply whether flows are counted by Service port.
func (b *NFTables) CountFlows(on bool) { b.opts.Counters = on }

// Counters tells how many flows began at each ServicePort; none when they are not
// counted. A count begins at zero again when a Service's rules change.
func (b *NFTables) Counters(ctx context.Context) ([]Count, error) {
	p := b.counted.Load()
	if p == nil {
		return nil, nil
	}
	return p.Counts(func(visit func(nftables.Elem, uint64)) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return b.hand.Counts(p.V4, p.V6, visit)
	})
}

// Mode is the name of the mode.
func (b *NFTables) Mode() string { return "nftables" }

// Apply compiles plan, and brings the kernel to it. When the kernel refuses the Change
// as a whole it is listed and the Change made Service by Service.
func (b *NFTables) Apply(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noV6 {
		plan = withoutV6(plan)
	}
	want := nftables.Compile(b.want, plan, b.opts)
	b.want = want
	if b.opts.Counters {
		b.counted.Store(want)
	}
	if err := b.know(want); err != nil {
		return nil, err
	}
	change := nftables.Diff(b.have, want)
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

// know lists the kernel when what it holds is not known.
func (b *NFTables) know(want *nftables.Program) error {
	if b.have != nil {
		return nil
	}
	have, err := b.hand.ListFor(want)
	if err != nil {
		return fmt.Errorf("nftables: list: %w", err)
	}
	b.have = have
	return nil
}

// piecemeal applies what is shared first, then each Service by itself, so that one
// refused Service does not hold up the rest. What the kernel holds is not known
// afterwards unless all went well.
func (b *NFTables) piecemeal(ctx context.Context, want *nftables.Program, cause error) ([]model.Problem, error) {
	b.have = nil
	if err := b.know(want); err != nil {
		return nil, errors.Join(cause, err)
	}
	change := nftables.Diff(b.have, want)
	b.have = nil
	before, after := change.Shared()
	if err := b.apply(before); err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	var problems []model.Problem
	tried, failed := 0, 0
	for i, part := range change.ByGroup() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tried++
		if err := b.apply(part); err != nil {
			failed++
			for _, svc := range change.Groups[i] {
				problems = append(problems, refused(svc, err))
			}
		}
	}
	if failed > 1 && failed == tried {
		return nil, fmt.Errorf("nftables: every Service was refused, first %w", cause)
	}
	if err := b.apply(after); err == nil && failed == 0 {
		b.have = want
	}
	return problems, nil
}

func (b *NFTables) apply(c *nftables.Change) error {
	if c.Empty() {
		return nil
	}
	return b.hand.Apply(c)
}

func refused(svc model.Ref, err error) model.Problem {
	return model.Problem{Object: svc, Reason: "RulesRefused",
		Message: fmt.Sprintf("the kernel refused this Service's nftables elements, its earlier ones stay in force; it will be tried again: %v", err)}
}

// Audit compares the kernel with the program last applied and repairs it. The lines
// returned are the commands that were needed.
func (b *NFTables) Audit(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.want == nil {
		return nil, nil
	}
	b.have = nil
	if err := b.know(b.want); err != nil {
		return nil, err
	}
	change := nftables.Diff(b.have, b.want)
	if change.Empty() {
		b.have = b.want
		return nil, nil
	}
	lines := change.Lines()
	err := b.hand.Apply(change)
	if err == nil {
		b.have = b.want
		return lines, nil
	}
	// One Service the kernel refuses must not hold up the repair of the others.
	if _, err = b.piecemeal(ctx, b.want, err); err != nil {
		return lines, fmt.Errorf("nftables: repair: %w", err)
	}
	return lines, nil
}

// Cleanup removes both tables.
func (b *NFTables) Cleanup(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have, b.want = nil, nil
	return b.hand.Cleanup()
}
