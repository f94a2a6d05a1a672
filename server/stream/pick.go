package stream

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Scheduler is how the target of a new connection is chosen, by the names IPVS gave
// them.
type Scheduler string

// The schedulers; the empty one is RoundRobin. SourceHash and Maglev choose by the
// client's address.
const (
	RoundRobin Scheduler = "rr"
	Random     Scheduler = "random"
	LeastConn  Scheduler = "lc"
	SourceHash Scheduler = "sh"
	Maglev     Scheduler = "mh"
)

// target is one address behind a route.
type target struct {
	addr netip.AddrPort
	counts
}

// live is a Route in force.
type live struct {
	route   *Route
	targets []*target
	turn    *atomic.Uint64
	sum     *counts  // of all targets, those gone included
	clients *clients // nil without affinity
	maglev  func() []int32
}

// newLive takes targets, counts and turn over from the route of that name before it.
func newLive(r *Route, prev *live, c *clients) *live {
	l := &live{route: r, turn: &atomic.Uint64{}, sum: &counts{}}
	if r.Affinity > 0 {
		l.clients = c
	}
	known := map[netip.AddrPort]*target{}
	if prev != nil {
		l.turn, l.sum = prev.turn, prev.sum
		for _, t := range prev.targets {
			known[t.addr] = t
		}
	}
	for _, a := range r.Targets {
		t := known[a]
		if t == nil {
			t = &target{addr: a}
			known[a] = t
		}
		l.targets = append(l.targets, t)
	}
	l.maglev = sync.OnceValue(func() []int32 { return maglevTable(r.Targets) })
	return l
}

func (l *live) has(t *target) bool { return slices.Contains(l.targets, t) }

// pick chooses the target of a client's new connection, none of skip; nil when all are
// in skip. A client with affinity keeps its target unless that is in skip.
func (l *live) pick(client netip.Addr, skip []*target) *target {
	if l.clients == nil {
		return l.schedule(client, skip)
	}
	now := time.Now()
	if addr, ok := l.clients.find(client, now); ok {
		for _, t := range l.targets {
			if t.addr == addr && !slices.Contains(skip, t) {
				l.clients.learn(client, addr, now, now.Add(l.route.Affinity))
				return t
			}
		}
	}
	t := l.schedule(client, skip)
	if t != nil {
		l.clients.learn(client, t.addr, now, now.Add(l.route.Affinity))
	}
	return t
}

func (l *live) schedule(client netip.Addr, skip []*target) *target {
	n := uint64(len(l.targets))
	if n == 0 {
		return nil
	}
	switch l.route.Scheduler {
	case Random:
		return l.walk(rand.Uint64N(n), skip)
	case LeastConn:
		return l.least(skip)
	case SourceHash:
		return l.walk(hashAddr(client, 0)%n, skip)
	case Maglev:
		return l.lookup(hashAddr(client, 0), skip)
	}
	return l.walk((l.turn.Add(1)-1)%n, skip)
}

// walk is the first target from at on that is not in skip.
func (l *live) walk(at uint64, skip []*target) *target {
	for i := range l.targets {
		if t := l.targets[(int(at)+i)%len(l.targets)]; !slices.Contains(skip, t) {
			return t
		}
	}
	return nil
}

// least has the fewest open connections; among equals turns are taken.
func (l *live) least(skip []*target) *target {
	var best *target
	at := int(l.turn.Add(1) - 1)
	for i := range l.targets {
		t := l.targets[(at+i)%len(l.targets)]
		if !slices.Contains(skip, t) && (best == nil || t.active.Load() < best.active.Load()) {
			best = t
		}
	}
	return best
}

func (l *live) lookup(hash uint64, skip []*target) *target {
	table := l.maglev()
	at := hash % uint64(len(table))
	for i := range table {
		if t := l.targets[table[(int(at)+i)%len(table)]]; !slices.Contains(skip, t) {
			return t
		}
	}
	return nil
}

// hashAddr is FNV-1a over an address and its port, mixed: every node computes the same.
func hashAddr(a netip.Addr, seed uint64) uint64 {
	h := 14695981039346656037 ^ seed*0x9e3779b97f4a7c15
	b := a.As16()
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// maglevSizes are primes; the table is a hundred times the number of targets at least,
// as far as they go.
func maglevSize(targets int) int {
	for _, prime := range []int{251, 4093, 65521} {
		if prime >= 100*targets {
			return prime
		}
	}
	return 65521
}

// maglevTable spreads targets over a table so that a target that comes or goes moves
// few entries of the others (Eisenbud and others, NSDI 2016, section 3.4).
func maglevTable(targets []netip.AddrPort) []int32 {
	size := maglevSize(len(targets))
	offset, skip := make([]int, len(targets)), make([]int, len(targets))
	for i, t := range targets {
		offset[i] = int(hashAddr(t.Addr(), uint64(t.Port())+1) % uint64(size))
		skip[i] = int(hashAddr(t.Addr(), uint64(t.Port())+1<<20)%uint64(size-1)) + 1
	}
	table := make([]int32, size)
	for i := range table {
		table[i] = -1
	}
	next := make([]int, len(targets))
	for filled := 0; filled < size; {
		for i := range targets {
			at := (offset[i] + next[i]*skip[i]) % size
			for table[at] >= 0 {
				next[i]++
				at = (offset[i] + next[i]*skip[i]) % size
			}
			table[at] = int32(i)
			next[i]++
			if filled++; filled == size {
				break
			}
		}
	}
	return table
}
