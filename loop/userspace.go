package loop

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/userspace"
	"fairway/server/stream"
)

// Userspace serves the userspace mode: listeners of this process, and rules that lead to
// them where it may write any.
type Userspace struct {
	mu       sync.Mutex
	server   *stream.Server
	rules    *NFTables // nil without the privilege
	prog     *userspace.Program
	carry    userspace.Carry
	specs    specs
	standing []model.Problem
	left     bool // the kernel forwards by itself, the process is about to end
}

// NewUserspace makes the backend of a stream server that serves nothing yet, and of
// tables of the mode's name; rules is nil when none may be written.
func NewUserspace(server *stream.Server, rules *NFTables) *Userspace {
	return &Userspace{server: server, rules: rules}
}

// Mode is the name of the mode.
func (b *Userspace) Mode() string { return string(proxy.Userspace) }

// Apply opens what listeners plan needs, leads packets to them, and then closes those
// that are no longer needed: nobody is led to where nobody listens.
func (b *Userspace) Apply(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left {
		return b.handOver(ctx, plan)
	}
	prog := userspace.Compile(b.prog, plan, b.rules != nil, b.carry)
	cfg := b.specs.config(prog)
	carry, failed := carried(prog, b.server, cfg)
	if !maps.Equal(carry.Ports, b.carry.Ports) || !maps.Equal(carry.Failed, b.carry.Failed) {
		b.carry = carry
		prog = userspace.Compile(prog, plan, b.rules != nil, carry)
		cfg = b.specs.config(prog)
		b.server.Set(cfg) // the same sockets, at the ports they got
	}
	b.prog, b.standing = prog, prog.Problems
	problems := notOpened(prog, failed)
	if b.rules != nil {
		more, err := b.rules.Apply(ctx, prog.Rules)
		problems = append(problems, more...)
		if err != nil {
			return problems, fmt.Errorf("userspace: %w", err)
		}
	}
	b.server.Prune(cfg)
	return problems, nil
}

// Standing are the Problems of the last Apply that trying again does not mend.
func (b *Userspace) Standing() []model.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standing
}

// Audit compares the rules in the kernel with those last applied and repairs them.
func (b *Userspace) Audit(ctx context.Context) ([]string, error) {
	if b.rules == nil {
		return nil, nil
	}
	lines, err := b.rules.Audit(ctx)
	return userspace.OwnTable(lines), err
}

// Watch notices somebody else's hands in the rules, as in the nftables mode.
func (b *Userspace) Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error)) {
	if b.rules == nil {
		<-ctx.Done()
		return
	}
	b.rules.Watch(ctx, every, func(drift []string, err error) { repaired(userspace.OwnTable(drift), err) })
}

// Cleanup closes every listener and removes the rules; connections that are open go on.
func (b *Userspace) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prog, b.carry = nil, userspace.Carry{}
	var err error
	if b.rules != nil {
		err = b.rules.Cleanup(ctx)
	}
	b.server.Prune(stream.Config{})
	return err
}

// Leave is the end of the process: the kernel is made to forward new connections to the
// endpoints itself, for rules that lead to a process that is gone would refuse them; then
// what is under way is taken, open connections are waited for until ctx ends, and what is
// left is cut. plan is the
// last that was applied, nil when none was.
func (b *Userspace) Leave(ctx context.Context, plan *proxy.Plan) error {
	b.mu.Lock()
	b.left = true
	var err error
	if plan != nil {
		_, err = b.handOver(context.WithoutCancel(ctx), plan)
	}
	b.mu.Unlock()
	rest(ctx, underWay)
	b.server.Shutdown(ctx)
	return err
}

// underWay is how long connections that were led here still arrive once rules lead
// elsewhere: a SYN that was lost comes again after a second (RFC 6298 section 2).
const underWay = 1200 * time.Millisecond

func (b *Userspace) handOver(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error) {
	if b.rules == nil {
		return nil, nil
	}
	problems, err := b.rules.Apply(ctx, userspace.Handover(plan))
	if err != nil {
		return problems, fmt.Errorf("userspace: rules that forward without this process: %w", err)
	}
	return problems, nil
}

// Counters tells what went by each Service port: of connections the process carried, and
// of SCTP, which the rules forward.
func (b *Userspace) Counters(ctx context.Context) ([]Count, error) {
	b.mu.Lock()
	prog, rules := b.prog, b.rules
	b.mu.Unlock()
	out := countsOf(b.server, prog)
	if counter, ok := any(rules).(Counter); ok && rules != nil {
		kernels, err := counter.Counters(ctx)
		return append(out, ofSCTP(kernels)...), err
	}
	return out, nil
}
