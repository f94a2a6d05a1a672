package loop

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairway/model"
	"fairway/proxy"
)

// Loop takes what the source delivers through every stage. Its fields are set before
// Run and not changed after.
type Loop struct {
	Node string
	// Proxy is the plan's configuration as told; node facts are filled in each pass.
	Proxy proxy.Config
	// DetectFromNode makes the detector's ranges the Node's pod CIDRs.
	DetectFromNode bool
	// NodeIPs stands in for the Node object's addresses where there is none.
	NodeIPs []netip.Addr
	// LocalAddrs reads the addresses on the node's interfaces.
	LocalAddrs func() ([]netip.Addr, error)
	// Backend programs the kernel; nil when this process is no service proxy.
	Backend Backend
	// AfterApply runs with the old plan (nil at first) and the new one once rules are in
	// force: stale flows are flushed from there, off the loop.
	AfterApply func(old, new *proxy.Plan)
	// Stages follow the rules: names, addresses, routes.
	Stages []Stage
	// Report is told all Problems of a pass: the cluster's, which every node finds
	// alike, and those of this node's kernel.
	Report func(cluster, node []model.Problem)
	// Observe is told how a pass went (metrics, health).
	Observe Observer
	// AuditEvery is the period of the comparison with the kernel; 0 is never.
	AuditEvery time.Duration
	// MinSync is the least time from the end of a pass to the next; LastRetry is how long
	// at most a failed one waits for its next try (0: 30 s).
	MinSync, LastRetry time.Duration
	// BindAddr, when valid, is the node's primary address of its family.
	BindAddr netip.Addr
	// Standing are Problems of this node that are not a pass's own.
	Standing func() []model.Problem

	mu     sync.Mutex
	latest input
	fresh  bool
	wake   chan struct{}

	snap atomic.Pointer[model.Snapshot]
	plan atomic.Pointer[proxy.Plan]

	changes changes
	failed  bool // the last pass, so that the next one lists the kernel
}

type input struct {
	objects  model.Objects
	problems []model.Problem
}

// Stage is a part that follows the rules in the kernel. Withdraw runs before the rules
// change, with the Services that stay as they are reachable now; Publish after, with
// everything: nothing resolves or is announced before it works.
type Stage interface {
	Withdraw(snap *model.Snapshot)
	Publish(ctx context.Context, snap *model.Snapshot, plan *proxy.Plan) []model.Problem
}

// Observer is told of each pass.
type Observer interface {
	Queued()
	// Changed is told how many Services and EndpointSlices differ from those in force,
	// and how many of them no earlier pass has seen.
	Changed(services, slices, newServices, newSlices int)
	// Applied is told that the rules are in force. A full pass is one before which the
	// kernel was listed: the first, and any after a failure.
	Applied(took time.Duration, plan *proxy.Plan, full bool)
	// Programmed is told the time from an endpoint's change to its rules in force.
	Programmed(v6 bool, took time.Duration)
	Failed(err error, full bool)
	Drift(lines []string)
}

// Deliver hands the loop the newest state; the pass that follows sees only the last.
func (l *Loop) Deliver(objects model.Objects, problems []model.Problem) {
	l.mu.Lock()
	l.latest, l.fresh = input{objects, problems}, true
	l.mu.Unlock()
	if l.Observe != nil {
		l.Observe.Queued()
	}
	l.Wake()
}

// Wake asks for another pass though no object changed (a lease was won, a node died).
func (l *Loop) Wake() {
	l.mu.Lock()
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	wake := l.wake
	l.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Snapshot is the state of the last pass, nil before the first.
func (l *Loop) Snapshot() *model.Snapshot { return l.snap.Load() }

// Plan is the plan whose rules are in force, nil before the first pass.
func (l *Loop) Plan() *proxy.Plan { return l.plan.Load() }

const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Run passes until ctx ends. Rules stay in the kernel when it returns.
func (l *Loop) Run(ctx context.Context) {
	l.Wake()
	audit := time.NewTicker(cmpOr(l.AuditEvery, time.Hour))
	defer audit.Stop()
	retry := time.NewTimer(time.Hour)
	delay := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-audit.C:
			if l.AuditEvery > 0 {
				l.audit(ctx)
			}
			continue
		case <-l.wake:
		case <-retry.C:
		}
		if l.pass(ctx) {
			delay = firstRetry
			retry.Stop()
		} else {
			retry.Reset(delay)
			delay = min(2*delay, cmpOr(l.LastRetry, lastRetry))
		}
		if !rest(ctx, l.MinSync) {
			return
		}
	}
}

// rest waits, and tells whether ctx goes on.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func cmpOr(d, other time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return other
}

// pass does one round and tells whether the rules are as they should be.
func (l *Loop) pass(ctx context.Context) bool {
	l.mu.Lock()
	in, known := l.latest, l.fresh
	l.mu.Unlock()
	if !known {
		return true // nothing was ever delivered: write nothing (a full wipe would be wrong)
	}
	start := time.Now()
	old := l.plan.Load()
	snap, problems := model.Build(l.snap.Load(), in.objects)
	problems = append(slices.Clone(in.problems), problems...)
	plan, more := l.planOf(old, snap)
	problems = append(problems, more...)
	l.snap.Store(snap)
	l.changes.see(in.objects, l.Observe)
	if old != nil {
		l.withdraw(snap, old)
	}
	full := old == nil || l.failed
	refused, ok := l.apply(ctx, plan, full)
	l.failed = !ok
	if !ok {
		l.report(problems, refused)
		return false
	}
	l.plan.Store(plan)
	for _, s := range l.Stages {
		problems = append(problems, s.Publish(ctx, snap, plan)...)
	}
	if l.Observe != nil {
		l.Observe.Applied(time.Since(start), plan, full)
	}
	l.changes.applied(time.Now(), l.Observe)
	if l.AfterApply != nil {
		l.AfterApply(old, plan)
	}
	l.report(problems, refused)
	return len(refused) == 0 // what was refused is tried again
}

// planOf is the node's plan; where somebody else proxies it has nothing but its
// configuration.
func (l *Loop) planOf(old *proxy.Plan, snap *model.Snapshot) (*proxy.Plan, []model.Problem) {
	cfg := l.config(snap)
	if l.Backend == nil {
		snap = &model.Snapshot{}
	}
	return proxy.New(old, snap, cfg)
}

// withdraw gives the stages a snapshot of the Services that were reachable before and
// still exist, so that names and announcements go before the rules do.
func (l *Loop) withdraw(snap *model.Snapshot, old *proxy.Plan) {
	if !old.AnyGone(snap) {
		return
	}
	for _, s := range l.Stages {
		s.Withdraw(old.Remaining(snap))
	}
}

func (l *Loop) apply(ctx context.Context, plan *proxy.Plan, full bool) ([]model.Problem, bool) {
	if l.Backend == nil {
		return nil, true
	}
	problems, err := l.Backend.Apply(ctx, plan)
	if err != nil {
		slog.Error("rules not applied; the last good ones stay in force", "mode", l.Backend.Mode(), "err", err)
		if l.Observe != nil {
			l.Observe.Failed(err, full)
		}
		return problems, false
	}
	return problems, true
}

func (l *Loop) report(cluster, node []model.Problem) {
	if l.Report == nil {
		return
	}
	if l.Standing != nil {
		node = slices.Concat(l.Standing(), node)
	}
	l.Report(cluster, node)
}

func (l *Loop) audit(ctx context.Context) {
	if l.Backend == nil || l.plan.Load() == nil {
		return
	}
	lines, err := l.Backend.Audit(ctx)
	if err != nil {
		slog.Warn("comparing with the kernel", "mode", l.Backend.Mode(), "err", err)
		return
	}
	if len(lines) > 0 {
		slog.Warn("the kernel's rules had drifted and were repaired", "mode", l.Backend.Mode(), "lines", len(lines), "first", lines[0])
	}
	if l.Observe != nil {
		l.Observe.Drift(lines)
	}
}

// config fills this node's facts in.
func (l *Loop) config(snap *model.Snapshot) proxy.Config {
	c := l.Proxy
	c.NodeIPs = l.NodeIPs
	if n := snap.Node(l.Node); n != nil {
		if len(n.InternalIPs) > 0 {
			c.NodeIPs = slices.Concat(n.InternalIPs, n.ExternalIPs)
		}
		if l.DetectFromNode {
			c.Detector.CIDRs = n.PodCIDRs
		}
	}
	c = OwnAddrs(c, l.BindAddr)
	if l.LocalAddrs != nil {
		addrs, err := l.LocalAddrs()
		if err != nil {
			slog.Warn("reading local addresses", "err", err)
		}
		c.LocalAddrs = addrs
	}
	return c
}

// OwnAddrs puts the address bound to, if any, in front of the node's others, and writes the
// word primary of the NodePort addresses out where it stands beside CIDRs.
func OwnAddrs(c proxy.Config, bind netip.Addr) proxy.Config {
	if bind.IsValid() {
		others := slices.DeleteFunc(slices.Clone(c.NodeIPs), func(a netip.Addr) bool { return a == bind })
		c.NodeIPs = append([]netip.Addr{bind}, others...)
	}
	c.NodePortAddresses = withPrimary(c.NodePortAddresses, c.NodeIPs)
	return c
}

// withPrimary writes the word primary out where it stands beside CIDRs.
func withPrimary(n proxy.NodePortAddresses, nodeIPs []netip.Addr) proxy.NodePortAddresses {
	if !n.Primary || len(n.CIDRs) == 0 {
		return n
	}
	cidrs := slices.Clone(n.CIDRs)
	for _, v6 := range []bool{false, true} {
		if i := slices.IndexFunc(nodeIPs, func(a netip.Addr) bool { return a.Is6() == v6 && !a.IsLoopback() }); i >= 0 {
			cidrs = append(cidrs, netip.PrefixFrom(nodeIPs[i], nodeIPs[i].BitLen()))
		}
	}
	return proxy.NodePortAddresses{CIDRs: cidrs}
}
