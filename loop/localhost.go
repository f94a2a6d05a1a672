package loop

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/userspace"
	"fairway/server/stream"
)

// Localhost is the stage that has listeners of this process serve NodePorts on 127.0.0.1
// and [::1], for modes whose rules cannot (KEP-6032).
type Localhost struct {
	Server *stream.Server
	// Wake asks for another pass, to try what could not be opened again.
	Wake func()

	prog  *userspace.Program
	specs specs

	mu       sync.Mutex
	standing []model.Problem
}

// localhostRetry is how long a port that is taken is left alone.
const localhostRetry = 30 * time.Second

// Withdraw does nothing: a listener goes when its rules have.
func (s *Localhost) Withdraw(*model.Snapshot) {}

// Publish opens and closes listeners for plan's NodePorts.
func (s *Localhost) Publish(_ context.Context, _ *model.Snapshot, plan *proxy.Plan) []model.Problem {
	prog := userspace.Localhost(s.prog, plan)
	if s.prog == nil && len(prog.Listeners) == 0 {
		return nil
	}
	cfg := s.specs.config(prog)
	_, failed := s.Server.Set(cfg)
	s.Server.Prune(cfg)
	s.prog = prog
	problems := notOpened(prog, failed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(problems) > 0 {
		time.AfterFunc(localhostRetry, s.Wake)
	}
	if len(problems) != len(s.standing) && len(problems) > 0 {
		slog.Warn("some NodePorts are not served on localhost", "ports", len(problems), "first", problems[0].Message)
	}
	s.standing = problems
	return nil
}

// Standing are the listeners that are not open.
func (s *Localhost) Standing() []model.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standing
}

// specs are a Program's listeners as the stream server takes them; those that stay the
// same are the same pointers.
type specs map[*userspace.Listener]*stream.Listener

func (s *specs) config(prog *userspace.Program) stream.Config {
	next := make(specs, len(prog.Listeners))
	var cfg stream.Config
	for _, l := range prog.Listeners {
		spec := (*s)[l]
		if spec == nil {
			spec = streamListener(l)
		}
		next[l] = spec
		cfg.Listeners = append(cfg.Listeners, spec)
	}
	*s = next
	return cfg
}

func streamListener(l *userspace.Listener) *stream.Listener {
	spec := &stream.Listener{Name: l.Name, Proto: l.Key.Proto, Addr: l.Addr, AnyPort: l.Inner, Captured: l.Inner, Choose: l.Choose}
	for _, list := range l.Lists {
		spec.Routes = append(spec.Routes, &stream.Route{Name: list.Name, Group: list.Group, Targets: list.Targets,
			Scheduler: stream.Scheduler(list.Scheduler), Affinity: list.Affinity})
	}
	return spec
}

// notOpened names the listeners that failed.
func notOpened(prog *userspace.Program, failed map[string]error) []model.Problem {
	var out []model.Problem
	for _, l := range prog.Listeners {
		if err := failed[l.Name]; err != nil {
			out = append(out, model.Problem{Object: l.Owner, Field: "spec.ports", Reason: "ListenerNotOpened",
				Message: fmt.Sprintf("this process does not listen for %s; it will be tried again: %v", l.Name, err)})
		}
	}
	return out
}

// carried is what the sockets became: those of listeners within, by name.
func carried(prog *userspace.Program, server *stream.Server, cfg stream.Config) (userspace.Carry, map[string]error) {
	bound, failed := server.Set(cfg)
	c := userspace.Carry{Ports: map[string]uint16{}, Failed: map[string]bool{}}
	for _, l := range prog.Listeners {
		if at, ok := bound[l.Name]; ok && l.Inner {
			c.Ports[l.Name] = at.Port()
		}
		if failed[l.Name] != nil && l.Inner {
			c.Failed[l.Name] = true
		}
	}
	return c, failed
}

// countsOf sums what a server's routes carried by Service port.
func countsOf(server *stream.Server, prog *userspace.Program) []Count {
	if prog == nil {
		return nil
	}
	keys := map[string]proxy.Key{}
	for _, l := range prog.Listeners {
		for _, list := range l.Lists {
			keys[list.Name] = l.Key
		}
	}
	var out []Count
	for _, c := range server.Counts() {
		if key, ok := keys[c.Route]; ok {
			out = append(out, Count{Key: key, Connections: c.Sum.Total, Measured: true, BytesIn: c.Sum.In, BytesOut: c.Sum.Out})
		}
	}
	return out
}

// ofSCTP are the counts of what a process does not carry.
func ofSCTP(list []Count) []Count {
	var out []Count
	for _, c := range list {
		if c.Proto == packet.SCTP {
			out = append(out, c)
		}
	}
	return out
}
