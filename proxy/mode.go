package proxy

import (
	"slices"
	"strings"
)

// Mode names a backend.
type Mode string

// The five modes; the empty one has the traits of nftables.
const (
	NFTables  Mode = "nftables"
	IPTables  Mode = "iptables"
	IPVS      Mode = "ipvs"
	Userspace Mode = "userspace"
	EBPF      Mode = "ebpf"
)

// Traits is what a mode does differently by its nature. The oracle knows it, so that one
// packet matrix holds for all modes.
type Traits struct {
	// Schedulers are the ways to choose an endpoint the mode has, its default first.
	Schedulers []Scheduler
	// RejectUnknownPorts is the mode's part of Config.RejectUnknownPorts.
	RejectUnknownPorts bool
	// LocalhostNodePorts says the mode can serve NodePorts on IPv4 loopback.
	LocalhostNodePorts bool
	// PrimaryNodePorts says NodePorts answer on the node's primary addresses alone
	// unless nodePortAddresses says otherwise.
	PrimaryNodePorts bool
	// BindsVIPs: every VIP is an address of the node. Unknown ports of any are rejected,
	// or they would reach the node's own servers; the node's own packets to a VIP come
	// from one; no address somebody else lives on can be a VIP.
	BindsVIPs bool
	// HidesSource: the connection to the endpoint is the proxy process's own, whatever
	// the policies say.
	HidesSource bool
	// SocketLevel: sockets of this node are led to the endpoint when they connect, so
	// that nothing is translated, and nobody masqueraded, on the way.
	SocketLevel bool
	// NoSCTP: SCTP is left alone.
	NoSCTP bool
}

// Traits returns the mode's traits.
func (m Mode) Traits() Traits {
	switch m {
	case IPTables:
		return Traits{Schedulers: []Scheduler{Random, RoundRobin}, LocalhostNodePorts: true}
	case IPVS:
		return Traits{RejectUnknownPorts: true, BindsVIPs: true, Schedulers: []Scheduler{RoundRobin, WeightedRoundRobin, LeastConn,
			WeightedLeastConn, LocalityLeastConn, LocalityReplicated, SourceHash, DestinationHash, ShortestDelay, NeverQueue, Maglev}}
	case Userspace:
		return Traits{RejectUnknownPorts: true, LocalhostNodePorts: true, HidesSource: true,
			Schedulers: []Scheduler{RoundRobin, Random, LeastConn, SourceHash, Maglev}}
	case EBPF:
		return Traits{RejectUnknownPorts: true, PrimaryNodePorts: true, SocketLevel: true, NoSCTP: true, Schedulers: []Scheduler{Random, SourceHash, Maglev}}
	}
	return Traits{RejectUnknownPorts: true, PrimaryNodePorts: true, Schedulers: []Scheduler{Random, RoundRobin, SourceHash, Maglev}}
}

// WithMode returns the configuration as mode m reads it: what the mode cannot do is off.
func (c Config) WithMode(m Mode) Config {
	t := m.Traits()
	c.Mode = m
	c.RejectUnknownPorts = c.RejectUnknownPorts && t.RejectUnknownPorts
	c.LocalhostNodePorts = c.LocalhostNodePorts && t.LocalhostNodePorts
	return c
}

// Scheduler is how the endpoint of a new flow is chosen, by the names IPVS gave them.
type Scheduler string

// The schedulers. SourceHash and Maglev hash the client's address, DestinationHash the
// VIP; all endpoints weigh the same, so the weighted ones differ from the plain ones in
// name only.
const (
	Random             Scheduler = "random"
	RoundRobin         Scheduler = "rr"
	WeightedRoundRobin Scheduler = "wrr"
	LeastConn          Scheduler = "lc"
	WeightedLeastConn  Scheduler = "wlc"
	LocalityLeastConn  Scheduler = "lblc"
	LocalityReplicated Scheduler = "lblcr"
	SourceHash         Scheduler = "sh"
	DestinationHash    Scheduler = "dh"
	ShortestDelay      Scheduler = "sed"
	NeverQueue         Scheduler = "nq"
	Maglev             Scheduler = "mh"
)

// SchedulerAnnotation asks for a scheduler on a Service, in place of the node's.
const SchedulerAnnotation = "fairway.io/scheduler"

// ParseScheduler reads a scheduler's name, or the longer words for some; false when
// there is no such scheduler.
func ParseScheduler(s string) (Scheduler, bool) {
	switch sch := Scheduler(strings.ToLower(strings.TrimSpace(s))); sch {
	case "maglev":
		return Maglev, true
	case "source-hash", "sourcehash":
		return SourceHash, true
	case "round-robin":
		return RoundRobin, true
	case "least-conn":
		return LeastConn, true
	case Random, RoundRobin, WeightedRoundRobin, LeastConn, WeightedLeastConn, LocalityLeastConn, LocalityReplicated,
		SourceHash, DestinationHash, ShortestDelay, NeverQueue, Maglev:
		return sch, true
	}
	return "", false
}

// ByClient tells whether one client always meets the same endpoint.
func (s Scheduler) ByClient() bool { return s == SourceHash || s == Maglev || s == DestinationHash }

// Can tells whether the mode has the scheduler.
func (m Mode) Can(s Scheduler) bool { return slices.Contains(m.Traits().Schedulers, s) }
