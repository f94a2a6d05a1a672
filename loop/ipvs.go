package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/ipvs"
)

// ipvsHand is a node's IPVS: kernel.IPVS, or its fake.
type ipvsHand interface {
	List(ctx context.Context, v6 bool) (*ipvs.State, error)
	Sets(ctx context.Context, input string) error
	Rules(ctx context.Context, v6 bool, input string) error
	Do(ops []ipvs.Op) []error
	Bind(addrs []netip.Addr) error
	Unbind(addrs []netip.Addr) error
	RemoveDevice() error
	Destinations(key ipvs.ServiceKey) (map[netip.AddrPort]ipvs.Destination, error)
	Forget(ctx context.Context, others map[netip.AddrPort]bool) (int, error)
	Counts() (map[ipvs.ServiceKey]kernel.IPVSCount, error)
	Intact(ctx context.Context, v6 bool, addrs int, service *ipvs.ServiceKey) (bool, error)
}

// IPVS is the backend of IPVS mode, for the families it was given.
type IPVS struct {
	mu       sync.Mutex
	hand     ipvsHand
	families []*ipvsFamily
	last     *ipvs.Program // as compiled, with what was refused
	owners   atomic.Pointer[map[ipvs.ServiceKey]proxy.Key]
	node     *kernel.IPVS // hand, where it is a real node's
}

// ipvsFamily remembers what one family holds.
type ipvsFamily struct {
	v6   bool
	hand ipvsHand
	// have is what was applied, nil when only a listing can tell.
	have *ipvs.Program
	// listed is a listing the next write may start from, nil for none.
	listed *ipvs.State
	// draining is what takes nothing new and goes with its last connection.
	draining ipvs.Draining
	// refused holds what the kernel did not take, until it changes or an Audit.
	refused map[*proxy.ServicePort]model.Problem
}

// IPVSOptions are the node's settings for IPVS mode, as kube-proxy has them.
type IPVSOptions struct {
	// StrictARP keeps the node from answering for the VIPs it holds.
	StrictARP bool
	// Exclude are ranges whose virtual services are others'.
	Exclude []netip.Prefix
	// The time idle connections are kept; zero leaves the kernel's.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
}

// NewIPVS makes the backend for the families that are true in serves (IPv4, IPv6).
func NewIPVS(hand ipvsHand, serves [2]bool) *IPVS {
	b := &IPVS{hand: hand}
	for i, yes := range serves {
		if yes {
			b.families = append(b.families, &ipvsFamily{v6: i == 1, hand: hand,
				draining: ipvs.Draining{}, refused: map[*proxy.ServicePort]model.Problem{}})
		}
	}
	return b
}

// OpenIPVS makes the backend for a network namespace (a descriptor, 0 for the current
// one). What one family lacks is a Problem; the error is kernel.ErrNoIPVS and names all
// that is missing.
func OpenIPVS(ctx context.Context, netns int, node string, variant kernel.Variant) (*IPVS, []model.Problem, error) {
	hand, missing, err := kernel.OpenIPVS(ctx, netns, variant)
	if err != nil {
		return nil, nil, err
	}
	if err := hand.Sysctls(false); err != nil {
		return nil, nil, fmt.Errorf("IPVS mode: %w", err)
	}
	var problems []model.Problem
	for v6, err := range missing {
		problems = append(problems, nodeProblem(node, "FamilyNotServed", fmt.Sprintf("no Service rules for %s: %v", familyName(v6), err)))
	}
	b := NewIPVS(hand, [2]bool{hand.Serves(false), hand.Serves(true)})
	b.node = hand
	return b, problems, nil
}

// Tune gives the node its settings, before the first Apply.
func (b *IPVS) Tune(o IPVSOptions) error {
	if b.node == nil {
		return nil
	}
	b.node.Exclude = o.Exclude
	if o.StrictARP {
		if err := b.node.Sysctls(true); err != nil {
			return fmt.Errorf("IPVS mode: strict ARP: %w", err)
		}
	}
	if o.TCPTimeout+o.TCPFinTimeout+o.UDPTimeout == 0 {
		return nil
	}
	return b.node.Timeouts(o.TCPTimeout, o.TCPFinTimeout, o.UDPTimeout)
}

// RemoveIPVS removes everything of this mode and of a kube-proxy in it. It makes and
// loads nothing to find out.
func RemoveIPVS(ctx context.Context, netns int) error {
	hand := kernel.LookIPVS(ctx, netns)
	defer hand.Close()
	return NewIPVS(hand, [2]bool{true, true}).Cleanup(ctx)
}

// Mode is ipvs.
func (b *IPVS) Mode() string { return string(proxy.IPVS) }

// Apply does what differs from the last applied Program.
func (b *IPVS) Apply(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = ipvs.Compile(b.last, plan)
	b.owners.Store(nil)
	return b.applyLast(ctx)
}

func (b *IPVS) applyLast(ctx context.Context) ([]model.Problem, error) {
	var problems []model.Problem
	var errs []error
	for _, f := range b.families {
		if err := f.apply(ctx, b.last); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", familyName(f.v6), err))
		}
		problems = append(problems, slices.SortedFunc(maps.Values(f.refused), func(a, b model.Problem) int {
			return cmp.Compare(a.String(), b.String())
		})...)
	}
	return problems, errors.Join(errs...)
}

// Audit compares the kernel with what was applied and repairs it. What was refused is
// tried again.
func (b *IPVS) Audit(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return nil, nil
	}
	var drift []string
	for _, f := range b.families {
		if f.have != nil {
			listed, err := f.hand.List(ctx, f.v6)
			if err != nil {
				return drift, fmt.Errorf("%s: %w", familyName(f.v6), err)
			}
			have := f.have
			f.have, f.listed = nil, listed
			for _, line := range ipvs.Drift(listed, have, f.draining) {
				drift = append(drift, familyName(f.v6)+" "+line)
			}
		}
		clear(f.refused)
	}
	_, err := b.applyLast(ctx)
	return drift, err
}

// apply brings the family to want, less what it refused before. A second try starts
// from a listing, which shows what of the first arrived.
func (f *ipvsFamily) apply(ctx context.Context, want *ipvs.Program) error {
	err := f.write(ctx, f.admitted(want))
	if err == nil {
		return nil
	}
	return f.write(ctx, f.admitted(want))
}

func (f *ipvsFamily) admitted(p *ipvs.Program) *ipvs.Program {
	if len(f.refused) == 0 {
		return p
	}
	still := map[*proxy.ServicePort]model.Problem{}
	out := p.Without(func(sp *proxy.ServicePort) bool {
		problem, bad := f.refused[sp]
		if bad {
			still[sp] = problem
		}
		return bad
	})
	f.refused = still
	return out
}

// write applies the difference to want. After an error have is unknown.
func (f *ipvsFamily) write(ctx context.Context, want *ipvs.Program) error {
	c, err := f.diff(ctx, want)
	if err != nil {
		return err
	}
	f.have = nil
	if err := f.hand.Sets(ctx, c.SetsBefore); err != nil {
		return err
	}
	if err := f.hand.Rules(ctx, f.v6, c.Rules); err != nil {
		return err
	}
	if err := f.do(c, c.Services); err != nil {
		return err
	}
	if err := f.hand.Bind(c.BindAddrs); err != nil {
		return err
	}
	if err := f.hand.Unbind(c.UnbindAddrs); err != nil {
		return err
	}
	if err := f.do(c, c.Removals); err != nil {
		return err
	}
	if err := f.hand.Sets(ctx, c.SetsAfter); err != nil {
		return err
	}
	f.have = want
	return nil
}

func (f *ipvsFamily) diff(ctx context.Context, want *ipvs.Program) (*ipvs.Change, error) {
	if f.have != nil {
		return ipvs.Diff(f.have, want, f.v6, f.draining), nil
	}
	listed := f.listed
	if f.listed = nil; listed == nil {
		var err error
		if listed, err = f.hand.List(ctx, f.v6); err != nil {
			return nil, err
		}
	}
	clear(f.draining) // the listing tells what has weight 0
	return ipvs.DiffState(listed, want, f.draining), nil
}

// do carries operations out and notes whose the kernel refused.
func (f *ipvsFamily) do(c *ipvs.Change, ops []ipvs.Op) error {
	var done []ipvs.Op
	var errs []error
	for i, err := range f.hand.Do(ops) {
		o := ops[i]
		if err == nil {
			done = append(done, o)
			continue
		}
		errs = append(errs, err)
		if sp := o.Port; sp != nil && f.refused[sp].Reason == "" { // what follows fails of the first
			f.refused[sp] = model.Problem{Object: sp.Ref(), Reason: "RulesRefused",
				Message: fmt.Sprintf("port %s: IPVS refuses it in %s; it is not served on this node: %v", sp.Key, familyName(f.v6), err)}
		}
	}
	f.draining.Note(c, done)
	return errors.Join(errs[:min(len(errs), 5)]...)
}
