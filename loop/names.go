package loop

import (
	"context"
	"sync/atomic"
	"time"

	"fairway/dns"
	"fairway/model"
	"fairway/proxy"
)

// Names is the DNS stage: a name is answered once the rules behind it are in force.
type Names struct {
	Config dns.Config
	// Set hands the zone to the server.
	Set func(*dns.Zone)

	zone *dns.Zone
	next atomic.Pointer[dns.Config]
}

// Reconfigure replaces Config from the next pass on.
func (n *Names) Reconfigure(cfg dns.Config) { n.next.Store(&cfg) }

// Withdraw takes names away whose rules are about to go.
func (n *Names) Withdraw(snap *model.Snapshot) {
	n.build(snap)
}

// Publish answers everything of snap.
func (n *Names) Publish(_ context.Context, snap *model.Snapshot, _ *proxy.Plan) []model.Problem {
	return n.build(snap)
}

func (n *Names) build(snap *model.Snapshot) []model.Problem {
	if next := n.next.Swap(nil); next != nil {
		n.Config = *next
	}
	cfg := n.Config
	cfg.Serial = uint32(time.Now().Unix())
	zone, problems := dns.Build(n.zone, snap, cfg)
	if zone != n.zone {
		n.zone = zone
		n.Set(zone)
	}
	return problems
}
