// Package userspace turns a proxy.Plan into the Program of a proxy process: listeners,
// each with the endpoints it spreads its clients over, and the capture, a small nft
// table that leads packets from a Service's addresses to the listeners and refuses or
// drops what has to be. Program has a text, a Trace that walks both, and a Diff. Without
// the privilege to write rules there is no capture, and the listeners take what
// addresses of Services are the machine's own. The package opens no socket, talks to no
// kernel and chooses no endpoint.
package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/nftables"
)

// TableName is the name of the capture's two tables.
const TableName = "fairway-userspace"

// Program is everything the process listens on, and the rules that lead there. It is
// never changed once made.
type Program struct {
	Listeners []*Listener
	// Rules is the Plan that the capture is the nftables program of: its endpoints are
	// the listeners. Nil without the privilege to write rules.
	Rules *proxy.Plan
	// Problems are what cannot be served, as long as objects and machine are as they are.
	Problems []model.Problem

	capture func() *nftables.Program

	parts    []*part
	plan     *proxy.Plan
	settings string

	once   sync.Once
	byAddr map[front]*Listener
	// refused are loopback's NodePorts without an endpoint: nothing listens there.
	refused map[front]bool
}

// index finds listeners by address; only Trace needs it.
func (p *Program) index() {
	p.byAddr, p.refused = map[front]*Listener{}, map[front]bool{}
	for _, made := range p.parts {
		for _, l := range made.listeners {
			p.byAddr[front{l.Addr, l.Key.Proto}] = l
		}
		if made.refused.addr.IsValid() {
			p.refused[made.refused] = true
		}
	}
}

// Capture is the rules, nil when there are none.
func (p *Program) Capture() *nftables.Program {
	if p.capture == nil {
		return nil
	}
	return p.capture()
}

// Listener is one socket. It is never changed: a Program shares those of the one before
// it that are the same.
type Listener struct {
	// Name is unique in a Program and stays the same while the Service port does.
	Name  string
	Owner model.Ref
	Key   proxy.Key
	Addr  netip.AddrPort
	// Inner is a listener the capture leads to: its port is of no consequence, and
	// another is as good.
	Inner bool
	// Lists are what clients are spread over; Choose gives each client its own.
	Lists []*List

	restricted   bool
	sourceRanges []netip.Prefix
	split        *split
}

// List is the endpoints of a Service port some clients are spread over.
type List struct {
	// Name is the Service port's and cluster or local. Group is the Service port's: a
	// client with affinity keeps its endpoint, by whichever list it comes.
	Name, Group string
	Targets     []netip.AddrPort
	Scheduler   proxy.Scheduler
	Affinity    time.Duration
}

// split is externalTrafficPolicy Local where the process has to tell clients apart: the
// node and its pods take the first list, the rest the second.
type split struct {
	detector proxy.Detector
	own      []netip.Addr
}

// Refused is what Choose returns for a client nobody serves.
const Refused = -1

// Choose gives the index of a client's list, or Refused.
func (l *Listener) Choose(client netip.Addr) int {
	if l.restricted && !slices.ContainsFunc(l.sourceRanges, func(r netip.Prefix) bool { return r.Contains(client) }) {
		return Refused
	}
	at := 0
	if s := l.split; s != nil && !s.has(client) {
		at = 1
	}
	if at >= len(l.Lists) || len(l.Lists[at].Targets) == 0 {
		return Refused
	}
	return at
}

// has tells whether a client is the node or, as far as its address tells, a pod of it.
func (s *split) has(client netip.Addr) bool {
	return client.IsLoopback() || slices.Contains(s.own, client) || s.detector.Local(packet.Packet{Src: client})
}

// front is where a listener is.
type front struct {
	addr  netip.AddrPort
	proto packet.Protocol
}
