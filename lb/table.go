package lb

import (
	"fmt"
	"net/netip"
	"slices"

	"fairway/model"
)

// table is who holds what during one pass. Addresses are only added: what a Service
// gives up is free in the next pass, when its status no longer shows it.
type table struct {
	users map[netip.Addr][]*ask
	// shared lists, by sharing key, the addresses held with it, in order of adding.
	shared map[string][]netip.Addr
	next   map[cursorKey]cursor
}

type cursorKey struct {
	pool *model.Pool
	v6   bool
}

// cursor is where the search for a free address goes on; everything before is taken.
type cursor struct {
	index int
	addr  netip.Addr
}

func newTable() *table {
	return &table{users: map[netip.Addr][]*ask{}, shared: map[string][]netip.Addr{}, next: map[cursorKey]cursor{}}
}

func (t *table) hold(ip netip.Addr, a *ask) {
	if slices.Contains(t.users[ip], a) {
		return
	}
	t.users[ip] = append(t.users[ip], a)
	if a.share != "" && !slices.Contains(t.shared[a.share], ip) {
		t.shared[a.share] = append(t.shared[a.share], ip)
	}
}

// collides says which port of a holder is the same as one of a's, "" when none.
func (t *table) collides(ip netip.Addr, a *ask) string {
	for _, u := range t.users[ip] {
		if u == a {
			continue
		}
		for _, p := range a.ports {
			if slices.Contains(u.ports, p) {
				return fmt.Sprintf("Service %s, which has port %s too", u.svc.Name, p)
			}
		}
	}
	return ""
}

// blocks says why a may not have ip, "" when it may: MetalLB's rule of sharing is same
// key, no port in common, and policies Cluster or the same Pods.
func (t *table) blocks(ip netip.Addr, a *ask) string {
	for _, u := range t.users[ip] {
		if u == a {
			continue
		}
		holder := "held by Service " + u.svc.Name.String()
		switch {
		case u.share == "" && a.share == "":
			return holder + "; to share it give both Services the same annotation metallb.io/allow-shared-ip"
		case u.share == "":
			return holder + ", which has no annotation metallb.io/allow-shared-ip"
		case a.share == "":
			return holder + " for sharing, but this Service has no annotation metallb.io/allow-shared-ip"
		case u.share != a.share:
			return fmt.Sprintf("%s with sharing key %q, this Service has %q", holder, u.share, a.share)
		case u.backend != a.backend:
			return holder + "; sharing needs externalTrafficPolicy Cluster on both, or Local on both with the same selector"
		}
	}
	if c := t.collides(ip, a); c != "" {
		return "held by " + c
	}
	return ""
}

// sharable finds an address of the pool already held with a's key that a may join.
func (t *table) sharable(pool *model.Pool, v6 bool, a *ask, ok func(netip.Addr) bool) (netip.Addr, bool) {
	if a.share == "" {
		return netip.Addr{}, false
	}
	var best netip.Addr
	for _, ip := range t.shared[a.share] {
		if ip.Is6() == v6 && pool.Contains(ip) && ok(ip) && t.blocks(ip, a) == "" && (!best.IsValid() || ip.Less(best)) {
			best = ip
		}
	}
	return best, best.IsValid()
}

// free finds the first address of the pool that nobody holds.
func (t *table) free(pool *model.Pool, v6 bool, ok func(netip.Addr) bool) (netip.Addr, bool) {
	key := cursorKey{pool, v6}
	c := t.next[key]
	defer func() { t.next[key] = c }()
	for ; c.index < len(pool.Ranges); c.index, c.addr = c.index+1, (netip.Addr{}) {
		r := pool.Ranges[c.index]
		if r.From.Is6() != v6 {
			continue
		}
		if !c.addr.IsValid() {
			c.addr = r.From
		}
		for ; c.addr.IsValid() && !r.To.Less(c.addr); c.addr = c.addr.Next() {
			if len(t.users[c.addr]) == 0 && ok(c.addr) {
				return c.addr, true
			}
		}
	}
	return netip.Addr{}, false
}
