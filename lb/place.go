package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// place looks for addresses, all families from one pool. With PreferDualStack the
// first family alone is the second best, and a Problem says so.
func (as *assigner) place(a *ask, heldPool *model.Pool) (byFamily, *model.Problem) {
	candidates, p := as.candidates(a, heldPool)
	if p != nil {
		return nil, p
	}
	var blockers []blocker
	for _, pool := range candidates {
		got, b := as.fill(a, pool, a.families)
		if b == nil {
			return got, nil
		}
		blockers = append(blockers, *b)
	}
	problem := refusal(a, blockers)
	if len(a.families) < 2 || a.all {
		return nil, problem
	}
	if len(a.held) > 0 && !a.moving(heldPool) {
		return a.held, degraded(a, a.held, problem)
	}
	for _, pool := range candidates {
		if got, b := as.fill(a, pool, a.families[:1]); b == nil && len(a.held) == 0 {
			return got, degraded(a, got, problem)
		}
	}
	return nil, problem
}

func degraded(a *ask, got byFamily, p *model.Problem) *model.Problem {
	ip := a.list(got)[0]
	p.Reason = "DualStackDegraded"
	p.Message = fmt.Sprintf("only %s could be given of %s: %s", familyName(ip.Is6()), familyNames(a.families), p.Message)
	return p
}

// candidates are the pools to try, or the Problem that leaves none.
func (as *assigner) candidates(a *ask, heldPool *model.Pool) ([]*model.Pool, *model.Problem) {
	fail := func(field, reason, format string, args ...any) ([]*model.Pool, *model.Problem) {
		p := a.svc.Problem(field, reason, fmt.Sprintf(format, args...))
		return nil, &p
	}
	if len(as.pools.list) == 0 {
		return fail("spec.type", "NoPool", "there is no address pool; create an IPAddressPool (metallb.io/v1beta1) with addresses to give out, and an L2Advertisement to announce them")
	}
	if req := a.list(a.request); len(req) > 0 {
		pool := as.requestedPool(req)
		switch {
		case pool == nil && len(req) > 1:
			return fail(a.requestField, "AddressNotInPool", "no IPAddressPool contains both %s and %s", req[0], req[1])
		case pool == nil:
			return fail(a.requestField, "AddressNotInPool", "requested address %s is in no IPAddressPool; the pools are %s", req[0], as.poolNames())
		case a.pool != "" && pool.Name.Name != a.pool:
			return fail(a.requestField, "AddressNotInPool", "requested address %s is in pool %s, but the annotation address-pool asks for %s", req[0], pool.Name.Name, a.pool)
		}
		return as.only(a, pool, a.requestField)
	}
	if a.pool != "" {
		pool := as.pools.named(a.pool)
		if pool == nil {
			return fail(a.poolField, "PoolNotFound", "there is no IPAddressPool %s; the pools are %s", a.pool, as.poolNames())
		}
		return as.only(a, pool, a.poolField)
	}
	if heldPool != nil { // only a family is missing: what is held does not move
		return []*model.Pool{heldPool}, nil
	}
	if len(a.held) > 0 {
		return nil, as.outside(a, nil)
	}
	return as.automatic(a)
}

// requestedPool is the first pool that contains all requested addresses.
func (as *assigner) requestedPool(req []netip.Addr) *model.Pool {
	for _, pool := range as.pools.list {
		if !slices.ContainsFunc(req, func(ip netip.Addr) bool { return !pool.Contains(ip) }) {
			return pool
		}
	}
	return nil
}

func (as *assigner) only(a *ask, pool *model.Pool, field string) ([]*model.Pool, *model.Problem) {
	if why := as.pools.refuses(pool, a.svc); why != "" {
		p := a.svc.Problem(field, "PoolNotAllowed", fmt.Sprintf("pool %s may not be used: it %s", pool.Name.Name, why))
		return nil, &p
	}
	return []*model.Pool{pool}, nil
}

func (as *assigner) automatic(a *ask) ([]*model.Pool, *model.Problem) {
	var out []*model.Pool
	var why []string
	for _, pool := range as.pools.order {
		switch reason := as.pools.refuses(pool, a.svc); {
		case !pool.AutoAssign:
			why = append(why, fmt.Sprintf("pool %s has autoAssign false (name it in the annotation metallb.io/address-pool)", pool.Name.Name))
		case reason != "":
			why = append(why, fmt.Sprintf("pool %s: %s", pool.Name.Name, reason))
		default:
			out = append(out, pool)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	p := a.svc.Problem("spec.type", "NoPoolAdmits", "no pool serves this Service by itself: "+strings.Join(why, "; "))
	return nil, &p
}

func (as *assigner) poolNames() string {
	var out []string
	for _, p := range as.pools.list {
		out = append(out, p.Name.Name)
	}
	return strings.Join(out, ", ")
}

// blocker is why one pool could not serve.
type blocker struct{ field, reason, message string }

// refusal joins the blockers of all pools tried into one Problem; a pool that would do
// but is full says more than one that never could.
func refusal(a *ask, blockers []blocker) *model.Problem {
	var text []string
	for _, b := range blockers {
		text = append(text, b.message)
	}
	first := blockers[0]
	if i := slices.IndexFunc(blockers, func(b blocker) bool { return b.reason == "PoolExhausted" }); i > 0 {
		first = blockers[i]
	}
	p := a.svc.Problem(first.field, first.reason, strings.Join(text, "; "))
	return &p
}

// fill takes one address per family from the pool, or says what blocks it. Nothing is
// held yet: the caller does that when all families are found.
func (as *assigner) fill(a *ask, pool *model.Pool, families []bool) (byFamily, *blocker) {
	got := byFamily{}
	for _, v6 := range families {
		ip, b := as.pick(a, pool, v6)
		if b != nil {
			return nil, b
		}
		got[v6] = ip
	}
	return got, nil
}

func (as *assigner) pick(a *ask, pool *model.Pool, v6 bool) (netip.Addr, *blocker) {
	ok := as.usable(pool)
	if ip, fixed := a.request[v6]; fixed {
		return ip, as.requestBlocker(a, pool, ip)
	}
	for _, m := range []byFamily{a.held, a.promised} {
		if ip, has := m[v6]; has && pool.Contains(ip) {
			return ip, nil
		}
	}
	if ip, found := as.table.sharable(pool, v6, a, ok); found {
		return ip, nil
	}
	if ip, found := as.table.free(pool, v6, ok); found {
		return ip, nil
	}
	if !has(pool, v6) {
		return netip.Addr{}, &blocker{"spec.ipFamilies", "NoFamilyInPool", fmt.Sprintf("pool %s has no %s addresses", pool.Name.Name, familyName(v6))}
	}
	return netip.Addr{}, &blocker{"spec.type", "PoolExhausted", fmt.Sprintf(
		"pool %s has no free %s address left; add a range to it or delete a Service that holds one", pool.Name.Name, familyName(v6))}
}

func (as *assigner) requestBlocker(a *ask, pool *model.Pool, ip netip.Addr) *blocker {
	switch why := as.table.blocks(ip, a); {
	case as.pools.nodes[ip] != "":
		return &blocker{a.requestField, "AddressInUse", fmt.Sprintf("requested address %s is the address of node %s", ip, as.pools.nodes[ip])}
	case pool.AvoidBuggyIPs && buggy(ip):
		return &blocker{a.requestField, "AddressNotInPool", fmt.Sprintf("requested address %s ends in .0 or .255, which pool %s leaves out (avoidBuggyIPs)", ip, pool.Name.Name)}
	case why != "":
		return &blocker{a.requestField, "AddressInUse", fmt.Sprintf("requested address %s is %s", ip, why)}
	}
	return nil
}

// usable tells addresses the pool may give at all.
func (as *assigner) usable(pool *model.Pool) func(netip.Addr) bool {
	return func(ip netip.Addr) bool {
		return as.pools.nodes[ip] == "" && !(pool.AvoidBuggyIPs && buggy(ip))
	}
}
