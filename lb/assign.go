package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// Assign says which addresses every Service of ours should have. Addresses in status
// are taken over first, then promised ones, and only then are pending Services
// served, oldest first (creation time, then name).
func Assign(snap *model.Snapshot, cfg Config) (Result, []model.Problem) {
	as := assigner{table: newTable()}
	as.pools, as.problems = readPools(snap)
	var res Result
	var asks []*ask
	var leaving []*model.Service
	for _, s := range snap.Services {
		switch {
		case cfg.Serves(s) && !s.Deleting:
			asks = append(asks, readAsk(s, cfg.Promised[s.Name]))
		case cfg.Serves(s) || !cfg.OnlyClass && s.Type != model.LoadBalancer && slices.Contains(s.Finalizers, CleanupFinalizer):
			res.Wants = append(res.Wants, release(s))
			leaving = append(leaving, s)
		}
	}
	slices.SortStableFunc(asks, func(a, b *ask) int {
		return cmp.Or(a.svc.Created.Compare(b.svc.Created), a.svc.Name.Compare(b.svc.Name))
	})
	for _, a := range asks {
		as.adopt(a)
	}
	for _, s := range leaving {
		as.reserve(s)
	}
	for _, a := range asks {
		as.keepPromise(a)
	}
	for _, a := range asks {
		res.Wants = append(res.Wants, as.serve(a))
	}
	slices.SortFunc(res.Wants, func(a, b Want) int { return a.Service.Name.Compare(b.Service.Name) })
	return res, as.problems
}

type assigner struct {
	pools    pools
	table    *table
	problems []model.Problem
}

// release is the wish for a Service that is deleted or of another type now.
func release(s *model.Service) Want {
	w := Want{Service: s}
	if slices.Contains(s.Finalizers, CleanupFinalizer) {
		w.Finalizer = RemoveFinalizer
	}
	return w
}

// reserve keeps what a leaving Service still shows from being given on too early.
func (as *assigner) reserve(s *model.Service) {
	a := readAsk(s, Promise{})
	for _, ip := range heldAddrs(s) {
		as.table.hold(ip, a)
	}
}

// adopt takes over what status shows. Only a port that two holders both have makes
// the younger one lose the address: everything less is a Problem, not a change.
func (as *assigner) adopt(a *ask) {
	for _, ip := range a.list(a.held) {
		if c := as.table.collides(ip, a); c != "" {
			as.problem(a.svc.Problem("status.loadBalancer", "AddressConflict", fmt.Sprintf(
				"%s is also held by the older %s; this Service gets another address", ip, c)))
			delete(a.held, ip.Is6())
			continue
		}
		if why := as.table.blocks(ip, a); why != "" {
			as.problem(a.svc.Problem("metadata.annotations[metallb.io/allow-shared-ip]", "SharingNotAllowed", fmt.Sprintf(
				"keeps %s, which is %s; request another address with metallb.io/loadBalancerIPs to part them", ip, why)))
		}
		as.table.hold(ip, a)
	}
}

// keepPromise takes over a decision whose status write is still on its way, unless
// the Service asks for something else since.
func (as *assigner) keepPromise(a *ask) {
	for f, ip := range a.promised {
		req, fixed := a.request[f]
		pool := as.pools.of(ip)
		if fixed && req != ip || pool == nil || !as.usable(pool)(ip) || as.table.blocks(ip, a) != "" ||
			a.pool != "" && pool.Name.Name != a.pool || as.pools.refuses(pool, a.svc) != "" {
			delete(a.promised, f)
			continue
		}
		as.table.hold(ip, a)
	}
}

// serve decides about one Service after everything held is known.
func (as *assigner) serve(a *ask) Want {
	pool := as.heldPool(a)
	got, p := as.decide(a, pool)
	w := Want{Service: a.svc, Addrs: a.list(got)}
	if len(w.Addrs) > 0 {
		if pool = as.pools.of(w.Addrs[0]); pool != nil {
			w.Pool = pool.Name
		}
		if !slices.Contains(a.svc.Finalizers, CleanupFinalizer) {
			w.Finalizer = AddFinalizer
		}
	}
	for _, ip := range w.Addrs {
		as.table.hold(ip, a)
	}
	if p != nil {
		if len(w.Addrs) == 0 {
			p.Message = "EXTERNAL-IP stays <pending>: " + p.Message
		} else {
			p.Message = "has " + joinAddrs(w.Addrs) + ": " + p.Message
		}
		as.problem(*p)
	}
	w.Conditions = []Condition{condition(w, p)}
	return w
}

// decide returns the addresses to have and the Problem, if not all is as asked.
func (as *assigner) decide(a *ask, pool *model.Pool) (byFamily, *model.Problem) {
	if a.broken != nil {
		return a.held, a.broken
	}
	complete := len(a.held) == len(a.families)
	if complete && !a.moving(pool) {
		return a.held, as.outside(a, pool)
	}
	got, p := as.place(a, pool)
	if got == nil {
		got = a.held
	}
	return got, p
}

// heldPool is the pool of the first held address, nil when there is none.
func (as *assigner) heldPool(a *ask) *model.Pool {
	held := a.list(a.held)
	if len(held) == 0 {
		return nil
	}
	return as.pools.of(held[0])
}

func (as *assigner) outside(a *ask, pool *model.Pool) *model.Problem {
	if pool != nil {
		return nil
	}
	p := a.svc.Problem("status.loadBalancer", "AddressNotInPool",
		"the address is in no IPAddressPool, so no node announces it; add it to a pool, or request another with metallb.io/loadBalancerIPs")
	return &p
}

func (as *assigner) problem(p model.Problem) { as.problems = append(as.problems, p) }

func condition(w Want, p *model.Problem) Condition {
	c := Condition{Type: ConditionAddressAssigned, Status: len(w.Addrs) > 0}
	switch {
	case p != nil:
		c.Reason, c.Message = p.Reason, p.Message
	case w.Pool.Name != "":
		c.Reason, c.Message = "Assigned", joinAddrs(w.Addrs)+" from pool "+w.Pool.String()
	}
	return c
}

func joinAddrs(ips []netip.Addr) string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return strings.Join(out, ", ")
}
