// Package stream is the L4 byte proxy: listeners with routes come in as one immutable
// Config, connections and datagrams go out to one of a route's targets, bytes are copied
// both ways (spliced in the kernel where it can), and counts of what went where can be
// asked for. It looks at no byte, knows no Service, and decides no policy but which
// target is next.
package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairway/packet"
)

// Route is a list of targets and how one is chosen. It is never changed: another Route
// of the same Name takes its place, and counts, turns and clients remembered go on.
type Route struct {
	Name string
	// Group names the clients remembered; routes of one group share them.
	Group     string
	Targets   []netip.AddrPort
	Scheduler Scheduler
	// Affinity is how long a client stays with its target after its last new connection
	// (core/v1 sessionAffinityConfig.clientIP.timeoutSeconds); 0 is none.
	Affinity time.Duration
}

// Listener is one socket and where its clients may go. It is never changed.
type Listener struct {
	// Name is unique in a Config. A Listener of the same Name and protocol, whose Addr is
	// the same or the one that was got, keeps the socket.
	Name  string
	Proto packet.Protocol // TCP or UDP
	Addr  netip.AddrPort
	// AnyPort takes another port where Addr's is not free.
	AnyPort bool
	// Captured refuses TCP connections that no rule of this machine led here
	// (SO_ORIGINAL_DST): who asks for the listener's own address would get round what the
	// rules drop.
	Captured bool
	Routes   []*Route
	// Choose gives the index of a client's route; a negative one refuses the client: its
	// connection is reset, its datagram lost. Nil always chooses the first.
	Choose func(client netip.Addr) int
}

// Config is everything served.
type Config struct{ Listeners []*Listener }

// Settings are fixed for the life of a Server.
type Settings struct {
	// MaxConns bounds TCP connections, MaxSessions UDP clients; 0 is what the limit of
	// open files allows, and 10000.
	MaxConns, MaxSessions int
	// UDPIdle ends a client's session after that long without a datagram; 0 is a minute.
	UDPIdle time.Duration
	// DialTimeouts are the deadlines of the tries to reach a target, each at the next
	// one; nil is what kube-proxy's userspace mode had.
	DialTimeouts []time.Duration
	// Enter runs f where sockets are to be made (a network namespace); nil runs it here.
	Enter func(f func() error) error
	Log   *slog.Logger
}

// Server serves Configs. Its methods may be called at any time.
type Server struct {
	set  Settings
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
	own  sync.Map // netip.AddrPort of its listeners: never to be dialled

	conns    atomic.Int64
	refused  atomic.Uint64 // connections over MaxConns
	sessions sessions
	buffers  sync.Pool // *[]byte for datagrams

	mu        sync.Mutex
	closed    bool
	listeners map[string]*listener
	lives     map[*Route]*live
	byName    map[string]*live
	clients   map[string]*clients
}

// listener is an open socket.
type listener struct {
	spec  *Listener
	bound netip.AddrPort
	door  atomic.Pointer[door]
	close func()
	// retarget ends UDP sessions whose target has gone; nil for TCP.
	retarget func(*door)
}

// door is what a listener does with clients just now.
type door struct {
	lives    []*live
	choose   func(netip.Addr) int
	captured bool
}

// route is the client's, nil when it is refused.
func (d *door) route(client netip.Addr) *live {
	i := 0
	if d.choose != nil {
		i = d.choose(client)
	}
	if i < 0 || i >= len(d.lives) {
		return nil
	}
	return d.lives[i]
}

// New makes a Server that serves nothing yet.
func New(set Settings) *Server {
	if set.DialTimeouts == nil {
		set.DialTimeouts = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}
	}
	if set.MaxConns == 0 {
		set.MaxConns = mostConns()
	}
	if set.MaxSessions == 0 {
		set.MaxSessions = 10000
	}
	if set.UDPIdle == 0 {
		set.UDPIdle = time.Minute
	}
	if set.Enter == nil {
		set.Enter = func(f func() error) error { return f() }
	}
	if set.Log == nil {
		set.Log = slog.Default()
	}
	s := &Server{set: set, listeners: map[string]*listener{}, lives: map[*Route]*live{},
		byName: map[string]*live{}, clients: map[string]*clients{}}
	s.sessions.at = map[sessionKey]*session{}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// ErrClosed is the error of a Server that was shut down.
var ErrClosed = errors.New("the server is closed")

// Set opens the listeners of cfg that are not open, and puts its routes in force at once
// for new connections; a UDP session whose target is gone takes no more datagrams, a TCP
// connection goes on. Listeners that cfg does not have are left as they are until Prune.
// It returns the address of each open listener by name, and why the others are not open.
func (s *Server) Set(cfg Config) (map[string]netip.AddrPort, map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bound, failed := make(map[string]netip.AddrPort, len(cfg.Listeners)), map[string]error{}
	if s.closed {
		for _, spec := range cfg.Listeners {
			failed[spec.Name] = ErrClosed
		}
		return bound, failed
	}
	s.routes(cfg)
	for _, spec := range cfg.Listeners {
		l := s.listeners[spec.Name]
		if l != nil && l.spec == spec {
			bound[spec.Name] = l.bound
			continue
		}
		if l != nil && (l.spec.Proto != spec.Proto || l.spec.Addr != spec.Addr && l.bound != spec.Addr) {
			s.remove(spec.Name)
			l = nil
		}
		if err := s.put(l, spec); err != nil {
			failed[spec.Name] = fmt.Errorf("%s %s: %w", spec.Proto, spec.Addr, err)
			continue
		}
		bound[spec.Name] = s.listeners[spec.Name].bound
	}
	return bound, failed
}

// put gives an open listener its new routes, or opens it.
func (s *Server) put(l *listener, spec *Listener) error {
	d := &door{choose: spec.Choose, captured: spec.Captured}
	for _, r := range spec.Routes {
		d.lives = append(d.lives, s.lives[r])
	}
	if l != nil {
		l.spec = spec
		l.door.Store(d)
		if l.retarget != nil {
			l.retarget(d)
		}
		return nil
	}
	l = &listener{spec: spec}
	l.door.Store(d)
	if err := s.open(l); err != nil {
		return err
	}
	s.own.Store(l.bound, true)
	s.listeners[spec.Name] = l
	return nil
}

// Prune closes the listeners that cfg, which was Set, does not have. Their connections
// go on; their UDP sessions end.
func (s *Server) Prune(cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := make(map[string]bool, len(cfg.Listeners))
	for _, spec := range cfg.Listeners {
		keep[spec.Name] = true
	}
	for name := range s.listeners {
		if !keep[name] {
			s.remove(name)
		}
	}
}

func (s *Server) remove(name string) {
	l := s.listeners[name]
	l.close()
	s.own.Delete(l.bound)
	delete(s.listeners, name)
}

// routes makes the live side of every Route of cfg; a Route that was in force keeps its.
func (s *Server) routes(cfg Config) {
	lives, byName := make(map[*Route]*live, len(s.lives)), make(map[string]*live, len(s.byName))
	groups := make(map[string]*clients, len(s.clients))
	for _, spec := range cfg.Listeners {
		for _, r := range spec.Routes {
			if lives[r] != nil {
				continue
			}
			if r.Affinity > 0 && groups[r.Group] == nil {
				if groups[r.Group] = s.clients[r.Group]; groups[r.Group] == nil {
					groups[r.Group] = newClients()
				}
			}
			lv := s.lives[r]
			if lv == nil {
				lv = newLive(r, s.byName[r.Name], groups[r.Group])
			}
			lives[r], byName[r.Name] = lv, lv
		}
	}
	s.lives, s.byName, s.clients = lives, byName, groups
}

// Shutdown closes every listener and waits for open connections until ctx ends, when
// they are reset. Nothing can be Set afterwards.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for name := range s.listeners {
		s.remove(name)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.stop()
	<-done
}
