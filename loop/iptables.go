package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/iptables"
)

// iptablesHand is one family's tables: kernel.IPTables, or its fake.
type iptablesHand interface {
	List(context.Context) (*iptables.Program, error)
	Restore(ctx context.Context, input string) error
	// Batch is the number of ServicePorts to put into one Restore.
	Batch() int
	// Intact tells whether the canary chains are there.
	Intact(context.Context) (bool, error)
	RouteLocalnet() error
}

// IPTables is the backend of iptables mode, for the families it was given.
type IPTables struct {
	mu       sync.Mutex
	opts     iptables.Options
	families []*iptablesFamily
	last     *iptables.Program // as compiled, with what was refused
	node     string
	localnet bool
	// accounted says that the kernel was asked for counters.
	accounted bool
}

// iptablesFamily remembers what one family's tables hold.
type iptablesFamily struct {
	v6   bool
	hand iptablesHand
	// have is what was applied, nil when only a listing can tell; good is the last that
	// was applied whole.
	have, good *iptables.Program
	// refused holds what the kernel did not take, until it changes or an Audit.
	refused map[*proxy.ServicePort]model.Problem
	counts  ruleCounts
	held    heldChains
}

// NewIPTables makes the backend; a family whose hand is nil is left alone.
func NewIPTables(v4, v6 iptablesHand, opts iptables.Options) *IPTables {
	b := &IPTables{opts: opts}
	for i, hand := range []iptablesHand{v4, v6} {
		if hand != nil {
			b.families = append(b.families, &iptablesFamily{v6: i == 1, hand: hand, refused: map[*proxy.ServicePort]model.Problem{}})
		}
	}
	return b
}

// OpenIPTables makes the backend for a network namespace (a descriptor, 0 for the
// current one). A family this node cannot serve is left out with a Problem; an error
// means neither can be.
func OpenIPTables(ctx context.Context, netns int, variant kernel.Variant, node string) (*IPTables, []model.Problem, error) {
	b := NewIPTables(nil, nil, iptables.Options{})
	var problems []model.Problem
	var errs []error
	for _, v6 := range []bool{false, true} {
		hand, err := kernel.FindIPTables(ctx, v6, netns, variant)
		if err != nil {
			errs = append(errs, err)
			problems = append(problems, nodeProblem(node, "FamilyNotServed", fmt.Sprintf("no Service rules for %s: %v", familyName(v6), err)))
			continue
		}
		if b.opts.Liberal, err = hand.Liberal(); err != nil {
			return nil, nil, err
		}
		b.families = append(b.families, &iptablesFamily{v6: v6, hand: hand, refused: map[*proxy.ServicePort]model.Problem{}})
	}
	if len(b.families) == 0 {
		return nil, nil, errors.Join(errs...)
	}
	return b, problems, nil
}

func nodeProblem(node, reason, message string) model.Problem {
	return model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: node}}, Reason: reason, Message: message}
}

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// Mode is iptables.
func (b *IPTables) Mode() string { return "iptables" }

// Apply writes what differs from the last applied Program.
func (b *IPTables) Apply(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.node = plan.Config.Node
	b.account(ctx)
	b.last = iptables.Compile(b.last, plan, b.opts)
	return b.applyLast(ctx)
}

func (b *IPTables) applyLast(ctx context.Context) ([]model.Problem, error) {
	var problems []model.Problem
	var errs []error
	for _, f := range b.families {
		err := f.apply(ctx, b.last)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", familyName(f.v6), err))
		}
		problems = append(problems, slices.SortedFunc(maps.Values(f.refused), func(a, b model.Problem) int {
			return cmp.Compare(a.String(), b.String())
		})...)
		problems = append(problems, f.held.problems(b.node, f.v6)...)
		if !f.v6 && err == nil && b.last.Localhost() && !b.localnet {
			// Only now: the rule that keeps others out stands.
			if err := f.hand.RouteLocalnet(); err != nil {
				problems = append(problems, nodeProblem(b.node, "LocalhostNodePorts", err.Error()))
			}
			b.localnet = true
		}
	}
	return problems, errors.Join(errs...)
}

// Audit compares both families with what was applied and repairs them. What was
// refused is tried again.
func (b *IPTables) Audit(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return nil, nil
	}
	var drift []string
	for _, f := range b.families {
		listed, err := f.hand.List(ctx)
		if err != nil {
			return drift, fmt.Errorf("%s: %w", familyName(f.v6), err)
		}
		if f.have != nil {
			for _, line := range f.held.unexpected(iptables.Drift(listed, f.have, f.v6)) {
				drift = append(drift, familyName(f.v6)+" "+line)
			}
		}
		f.have = listed
		clear(f.refused)
	}
	_, err := b.applyLast(ctx)
	return drift, err
}

// Watch polls the canary chains until ctx ends. When they are gone it audits, and tells
// repaired what was found missing.
func (b *IPTables) Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		intact, err := b.intact(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || !intact {
			drift, auditErr := b.Audit(ctx)
			repaired(drift, errors.Join(err, auditErr))
		}
	}
}

func (b *IPTables) intact(ctx context.Context) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.families {
		if f.have == nil {
			continue
		}
		if ok, err := f.hand.Intact(ctx); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// Cleanup removes every chain and jump of ours and of a kube-proxy in iptables mode.
func (b *IPTables) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, f := range b.families {
		f.have = nil
		errs = append(errs, f.cleanup(ctx))
	}
	for _, f := range b.families {
		if hand, ok := f.hand.(accounting); ok {
			errs = append(errs, hand.DeleteAccounts())
			break // they are not one family's
		}
	}
	return errors.Join(errs...)
}

func (f *iptablesFamily) cleanup(ctx context.Context) error {
	listed, err := f.hand.List(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", familyName(f.v6), err)
	}
	input := listed.Removal(f.v6)
	if input == "" {
		return nil
	}
	if err := f.hand.Restore(ctx, input); err != nil {
		return fmt.Errorf("%s: %w", familyName(f.v6), err)
	}
	return nil
}

// apply brings the family to want, less what it refused before.
func (f *iptablesFamily) apply(ctx context.Context, want *iptables.Program) error {
	want = f.admitted(want)
	err := f.write(ctx, want, deleteStale)
	if err == nil {
		return nil
	}
	// The listing shows what of it arrived, and which chains cannot be deleted because
	// rules of others jump to them; often a second try is all it needs.
	again := f.write(ctx, want, deleteStale)
	if again == nil {
		return nil
	}
	if f.write(ctx, want, keepStale) == nil {
		f.held.why = again
		return nil
	}
	if f.separate(ctx, want) == 0 {
		return err
	}
	return f.write(ctx, f.admitted(want), deleteStale)
}

func (f *iptablesFamily) admitted(p *iptables.Program) *iptables.Program {
	if len(f.refused) == 0 {
		return p
	}
	still := map[*proxy.ServicePort]model.Problem{}
	out, kept := p.Keeping(f.good, func(sp *proxy.ServicePort) bool {
		if problem, bad := f.refused[sp]; bad {
			still[sp] = problem
			return true
		}
		return false
	})
	for sp, problem := range still {
		problem.Message, _, _ = strings.Cut(problem.Message, keptRules)
		if kept[sp] {
			problem.Message += keptRules
		}
		still[sp] = problem
	}
	f.refused = still
	return out
}

const keptRules = "; its earlier rules stay in force"

// write applies the difference to want; keepStale leaves the chains nobody needs, empty,
// and is an error where there is none. After an error have is unknown.
func (f *iptablesFamily) write(ctx context.Context, want *iptables.Program, stale staleChains) error {
	c, err := f.diff(ctx, want)
	if err != nil {
		return err
	}
	f.have = nil
	if stale == keepStale && !c.KeepStale() {
		return errNoneStale
	}
	if !c.Empty() {
		f.counts.last = map[string]int{}
		for input := range c.Batches(f.hand.Batch(), model.Name{Namespace: "default", Name: "kubernetes"}) {
			if err := f.hand.Restore(ctx, input); err != nil {
				return err
			}
			f.counts.written(input)
		}
	}
	f.have, f.good = want, want
	f.held.note(c)
	return nil
}

func (f *iptablesFamily) diff(ctx context.Context, want *iptables.Program) (*iptables.Change, error) {
	if f.have == nil {
		listed, err := f.hand.List(ctx)
		if err != nil {
			return nil, err
		}
		f.have = listed
	}
	return iptables.Diff(f.have, want, f.v6), nil
}

// separate finds which ServicePorts the kernel refuses, by halves, and returns how
// many; none when the fault is not any one's.
func (f *iptablesFamily) separate(ctx context.Context, want *iptables.Program) int {
	defer func() { f.have = nil }() // the probe chain is there now
	c, err := f.diff(ctx, want)
	if err != nil || f.hand.Restore(ctx, c.Try(nil)) != nil {
		return 0
	}
	found := 0
	var halve func(groups []iptables.Group)
	halve = func(groups []iptables.Group) {
		err := f.hand.Restore(ctx, c.Try(groups))
		switch {
		case err == nil || ctx.Err() != nil:
		case len(groups) == 1:
			sp := groups[0].Port
			f.refused[sp] = model.Problem{Object: sp.Ref(), Reason: "RulesRefused",
				Message: fmt.Sprintf("port %s: the kernel refuses its %s rules: %v", sp.Key, familyName(f.v6), err)}
			found++
		default:
			halve(groups[:len(groups)/2])
			halve(groups[len(groups)/2:])
		}
	}
	if len(c.Groups) > 0 {
		halve(c.Groups)
	}
	return found
}
