package loop

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"fairway/model"
	"fairway/packet"
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
	specs    map[*userspace.Listener]*stream.Listener
	standing []model.Problem
	left     bool // the kernel forwards by itself, the process is about to end
}

// NewUserspace makes the backend of a stream server that serves nothing yet, and of
// tables of the mode's name; rules is nil when none may be written.
func NewUserspace(server *stream.Server, rules *NFTables) *Userspace {
	return &Userspace{server: server, rules: rules, specs: map[*userspace.Listener]*stream.Listener{}}
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
	cfg := b.streamConfig(prog)
	bound, failed := b.server.Set(cfg)
	if carry := carried(prog, bound, failed); !maps.Equal(carry.Ports, b.carry.Ports) || !maps.Equal(carry.Failed, b.carry.Failed) {
		b.carry = carry
		prog = userspace.Compile(prog, plan, b.rules != nil, carry)
		cfg = b.streamConfig(prog)
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

// carried is what the sockets became: those of listeners within, by name.
func carried(prog *userspace.Program, bound map[string]netip.AddrPort, failed map[string]error) userspace.Carry {
	c := userspace.Carry{Ports: map[string]uint16{}, Failed: map[string]bool{}}
	for _, l := range prog.Listeners {
		if at, ok := bound[l.Name]; ok && l.Inner {
			c.Ports[l.Name] = at.Port()
		}
		if failed[l.Name] != nil && l.Inner {
			c.Failed[l.Name] = true
		}
	}
	return c
}

// notOpened are tried again with the next pass.
func notOpened(prog *userspace.Program, failed map[string]error) []model.Problem {
	var out []model.Problem
	for _, l := range prog.Listeners {
		if err := failed[l.Name]; err != nil {
			out = append(out, model.Problem{Object: l.Owner, Field: "spec.ports", Reason: "ListenerNotOpened",
				Message: fmt.Sprintf("the proxy process does not listen for %s; it will be tried again: %v", l.Name, err)})
		}
	}
	return out
}

// streamConfig is the listeners as the server takes them; those of the Program before are
// the same pointers.
func (b *Userspace) streamConfig(prog *userspace.Program) stream.Config {
	specs := make(map[*userspace.Listener]*stream.Listener, len(prog.Listeners))
	var cfg stream.Config
	for _, l := range prog.Listeners {
		spec := b.specs[l]
		if spec == nil {
			spec = streamListener(l)
		}
		specs[l] = spec
		cfg.Listeners = append(cfg.Listeners, spec)
	}
	b.specs = specs
	return cfg
}

func streamListener(l *userspace.Listener) *stream.Listener {
	spec := &stream.Listener{Name: l.Name, Proto: l.Key.Proto, Addr: l.Addr, AnyPort: l.Inner, Choose: l.Choose}
	for _, list := range l.Lists {
		spec.Routes = append(spec.Routes, &stream.Route{Name: list.Name, Group: list.Group, Targets: list.Targets,
			Scheduler: stream.Scheduler(list.Scheduler), Affinity: list.Affinity})
	}
	return spec
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
// open connections are waited for until ctx ends, and what is left is cut. plan is the
// last that was applied, nil when none was.
func (b *Userspace) Leave(ctx context.Context, plan *proxy.Plan) error {
	b.mu.Lock()
	b.left = true
	var err error
	if plan != nil {
		_, err = b.handOver(context.WithoutCancel(ctx), plan)
	}
	b.mu.Unlock()
	b.server.Shutdown(ctx)
	return err
}

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
	keys := map[string]proxy.Key{}
	if b.prog != nil {
		for _, l := range b.prog.Listeners {
			for _, list := range l.Lists {
				keys[list.Name] = l.Key
			}
		}
	}
	rules := b.rules
	b.mu.Unlock()
	var out []Count
	for _, c := range b.server.Counts() {
		if key, ok := keys[c.Route]; ok {
			out = append(out, Count{Key: key, Connections: c.Sum.Total, Measured: true, BytesIn: c.Sum.In, BytesOut: c.Sum.Out})
		}
	}
	counter, ok := any(rules).(Counter)
	if !ok || rules == nil {
		return out, nil
	}
	kernels, err := counter.Counters(ctx)
	for _, c := range kernels {
		if c.Proto == packet.SCTP {
			out = append(out, c)
		}
	}
	return out, err
}
