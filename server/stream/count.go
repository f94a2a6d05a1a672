package stream

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
)

// counts are kept per target and per route.
type counts struct {
	active atomic.Int64
	total  atomic.Uint64
	failed atomic.Uint64
	in     atomic.Uint64
	out    atomic.Uint64
}

// flow counts one connection or session of a target.
type flow struct {
	route  *live
	target *target
}

func (f flow) begin() {
	for _, c := range []*counts{&f.target.counts, f.route.sum} {
		c.total.Add(1)
		c.active.Add(1)
	}
}

func (f flow) end() {
	f.target.active.Add(-1)
	f.route.sum.active.Add(-1)
}

func (f flow) in(n int64) {
	f.target.in.Add(uint64(n))
	f.route.sum.in.Add(uint64(n))
}

func (f flow) out(n int64) {
	f.target.out.Add(uint64(n))
	f.route.sum.out.Add(uint64(n))
}

func (f flow) fail() {
	f.target.failed.Add(1)
	f.route.sum.failed.Add(1)
}

// Count is what went to a target, or by a route: connections (UDP: sessions) open now,
// begun and failed to begin, and bytes of payload from clients and to them.
type Count struct {
	Active        int64
	Total, Failed uint64
	In, Out       uint64
}

func (c *counts) count() Count {
	return Count{c.active.Load(), c.total.Load(), c.failed.Load(), c.in.Load(), c.out.Load()}
}

// RouteCount is a route's, with targets that are gone, and each of its targets'.
type RouteCount struct {
	Route   string
	Sum     Count
	Targets map[netip.AddrPort]Count
}

// Counts tells what went by each route in force, by name.
func (s *Server) Counts() []RouteCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]RouteCount, 0, len(s.byName))
	for name, l := range s.byName {
		r := RouteCount{Route: name, Sum: l.sum.count(), Targets: make(map[netip.AddrPort]Count, len(l.targets))}
		for _, t := range l.targets {
			r.Targets[t.addr] = t.count()
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b RouteCount) int { return strings.Compare(a.Route, b.Route) })
	return out
}

// Open tells how many connections and UDP sessions there are.
func (s *Server) Open() (connections, sessions int) {
	return int(s.conns.Load()), s.sessions.count()
}

// Lost tells how many connections were refused for being too many, and how many UDP
// sessions were ended to make room.
func (s *Server) Lost() (connections, sessions uint64) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return s.refused.Load(), s.sessions.evicted
}
