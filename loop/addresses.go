package loop

import (
	"context"
	"maps"
	"net/netip"

	"fairway/lb"
	"fairway/model"
	"fairway/proxy"
)

// Addresses is the load balancer stage: the leader decides who gets which address, and
// every node answers for the addresses that fall to it, once their rules are in force.
type Addresses struct {
	Config lb.Config
	Node   string
	// Leads tells whether this process may write status.
	Leads func() bool
	// Live tells which nodes renew their Lease, false while that is not known; nil
	// counts every node.
	Live func() (map[string]bool, bool)
	// Write is told the status every Service should have, leader only.
	Write func(lb.Result)
	// Announce is told the addresses this node answers for, with their interfaces
	// (none is every suitable one).
	Announce func(map[netip.Addr][]string)

	announced map[netip.Addr][]string
}

// Withdraw stops answering for addresses whose rules are about to go.
func (a *Addresses) Withdraw(snap *model.Snapshot) {
	next, _ := a.onNode(snap)
	kept := maps.Clone(a.announced)
	maps.DeleteFunc(kept, func(addr netip.Addr, _ []string) bool { _, stays := next[addr]; return !stays })
	if len(kept) != len(a.announced) {
		a.announced = kept
		a.Announce(kept)
	}
}

// Publish assigns and announces.
func (a *Addresses) Publish(_ context.Context, snap *model.Snapshot, _ *proxy.Plan) []model.Problem {
	var problems []model.Problem
	if a.Leads() {
		result, more := lb.Assign(snap, a.Config)
		a.Config.Promised = result.Promises()
		problems = append(problems, more...)
		a.Write(result)
	} else {
		a.Config.Promised = nil
	}
	mine, more := a.onNode(snap)
	if a.Leads() {
		problems = append(problems, more...)
	}
	a.announced = mine
	a.Announce(mine)
	return problems
}

func (a *Addresses) onNode(snap *model.Snapshot) (map[netip.Addr][]string, []model.Problem) {
	var live map[string]bool
	known := true
	if a.Live != nil {
		live, known = a.Live()
	}
	list, problems := lb.Announce(snap, a.Config, live)
	if !known {
		problems = nil // made of a guess; the fence keeps this node silent until it knows
	}
	return lb.OnNode(list, a.Node), problems
}
