// Package matrix holds every proxy mode to one table: a cell is one packet (who sends
// it, and to what), one Service (policies, affinity, state of its endpoints) and one
// node (how it tells its pods, whom it masquerades, where NodePorts answer). Cells go
// in; each mode's trace, and what real packets meet in a lab of network namespaces,
// must be what the Plan of that mode answers. It knows no mode's rules and has no
// exception for any: where a mode differs by nature, proxy.Mode says so to the Plan.
package matrix

import (
	"fmt"
	"net/netip"
	"strings"

	"fairway/packet"
)

// Source is who sends the packet.
type Source int

// The senders. EndpointItself is the endpoint on this node where there is one, else the
// one on the other; NodeLoopback sends to NodePorts on loopback alone.
const (
	LocalPod Source = iota
	RemotePod
	NodeItself
	NodeSecondAddress
	OtherNode
	OutsideClient
	EndpointItself
	NodeLoopback
)

// Dest is what the packet is sent to.
type Dest int

// The destinations. InternalOnly is the cluster address of a Service without any way in
// from outside; the two restricted ones have source ranges with and without the sender.
const (
	ClusterIP Dest = iota
	InternalOnly
	NodePortPrimary
	NodePortSecond
	NodePortLoopback
	ExternalIP
	LoadBalancer
	Admitted
	Refused
	UnknownPort
	UnknownExternalPort
	Unallocated
)

// State is which endpoints the Service has, on this node (here) and on another (there).
type State int

// The states.
const (
	BothReady State = iota
	OnlyThere
	OnlyHere
	NoEndpoints
	BothTerminating
	HereTerminating // and ready there
	NoneServing
	HintedZone // here for another zone, there for ours
	HintedNode // each for its own node
	HalfHinted // here without a hint
)

// Detect is how the node tells its own pods.
type Detect int

// The four modes, none, and one that has a CIDR for IPv4 only.
const (
	DetectNone Detect = iota
	DetectClusterCIDR
	DetectNodeCIDR
	DetectNodeCIDR4
	DetectBridge
	DetectPrefix
)

// NodePorts is where NodePorts answer.
type NodePorts int

// Everywhere, on primary addresses, on the second ones, on a CIDR of IPv6 only, on the
// primary IPv4 address and loopback.
const (
	Everywhere NodePorts = iota
	Primary
	Second
	SecondIPv6
	PrimaryAndLoopback
)

// Node is the part of a cell that a node has once for all packets.
type Node struct {
	Detect        Detect
	MasqueradeAll bool
	NodePorts     NodePorts
}

// Cell is one point of the matrix.
type Cell struct {
	Source                               Source
	Dest                                 Dest
	State                                State
	InternalLocal, ExternalLocal, Sticky bool
	V6                                   bool
	Proto                                packet.Protocol
	Node                                 Node
}

// The dimensions of a row, and how many values each has.
const (
	dimSource = iota
	dimDest
	dimState
	dimDetect
	dimNodePorts
	dimProto
	dimInternal
	dimExternal
	dimSticky
	dimFamily
	dimMasqueradeAll
	dimensions
)

func sizes() []int {
	return []int{int(NodeLoopback) + 1, int(Unallocated) + 1, int(HalfHinted) + 1, int(DetectPrefix) + 1,
		int(PrimaryAndLoopback) + 1, 3, 2, 2, 2, 2, 2}
}

func protocols() []packet.Protocol { return []packet.Protocol{packet.TCP, packet.UDP, packet.SCTP} }

func cellOf(row []int) Cell {
	return Cell{
		Source: Source(row[dimSource]), Dest: Dest(row[dimDest]), State: State(row[dimState]),
		InternalLocal: row[dimInternal] == 1, ExternalLocal: row[dimExternal] == 1, Sticky: row[dimSticky] == 1,
		V6: row[dimFamily] == 1, Proto: protocols()[row[dimProto]],
		Node: Node{Detect(row[dimDetect]), row[dimMasqueradeAll] == 1, NodePorts(row[dimNodePorts])},
	}
}

// possible leaves out what cannot be, or says nothing: loopback is the node's own, an
// endpoint sends only if there is one, a Service without a way in from outside has no
// external policy, nobody's address has no Service. Values not chosen yet are -1.
func possible(row []int) bool {
	is := func(dim, v int) bool { return row[dim] == v }
	not := func(dim, v int) bool { return row[dim] >= 0 && row[dim] != v }
	loop, to := int(NodeLoopback), int(NodePortLoopback)
	switch {
	case is(dimSource, loop) && not(dimDest, to), is(dimDest, to) && not(dimSource, loop),
		is(dimSource, int(EndpointItself)) && is(dimState, int(NoEndpoints)),
		is(dimDest, int(InternalOnly)) && is(dimExternal, 1):
		return false
	}
	if is(dimDest, int(Unallocated)) {
		for _, d := range []int{dimState, dimInternal, dimExternal, dimSticky} {
			if not(d, 0) {
				return false
			}
		}
	}
	return true
}

// sendable leaves out what this test can only trace: there are no SCTP sockets everywhere.
func sendable(row []int) bool { return row[dimProto] != 2 && possible(row) }

// fewNodes are the sendable cells on as few kinds of node as have every pair of settings,
// for where a node takes seconds to make.
func fewNodes(row []int) bool {
	d, n, m := row[dimDetect], row[dimNodePorts], row[dimMasqueradeAll]
	return sendable(row) && (d < 0 || n < 0 || m < 0 || (d+n)%2 == m)
}

// everything makes all possible cells.
func everything() []Cell {
	var out []Cell
	row := make([]int, dimensions)
	var next func(d int)
	next = func(d int) {
		if d == dimensions {
			if possible(row) {
				out = append(out, cellOf(row))
			}
			return
		}
		for v := range sizes()[d] {
			row[d] = v
			next(d + 1)
		}
	}
	next(0)
	return out
}

func (c Cell) String() string {
	word := func(set bool, s string) string {
		if set {
			return " " + s
		}
		return ""
	}
	return fmt.Sprintf("%s to %s, %s%s, %s%s%s%s; node: %s", name(sources, int(c.Source)), name(dests, int(c.Dest)), c.Proto,
		word(c.V6, "IPv6"), name(states, int(c.State)), word(c.InternalLocal, "iTP=Local"), word(c.ExternalLocal, "eTP=Local"),
		word(c.Sticky, "affinity"), c.Node)
}

func (n Node) String() string {
	s := name(detects, int(n.Detect)) + ", NodePorts on " + name(nodePorts, int(n.NodePorts))
	if n.MasqueradeAll {
		s += ", masqueradeAll"
	}
	return s
}

const (
	sources = "local pod|remote pod|node itself|node's second address|other node|outside client|endpoint itself|node's loopback"
	dests   = "clusterIP|clusterIP (internal only)|nodePort, primary|nodePort, second|nodePort, loopback|externalIP|" +
		"load balancer|load balancer, in ranges|load balancer, not in ranges|unknown port|unknown port of externalIP|unallocated"
	states = "ready here and there|ready there|ready here|no endpoints|terminating here and there|terminating here, ready there|" +
		"none serving|zone hints|node hints|half hinted"
	detects   = "no detector|ClusterCIDR|NodeCIDR|NodeCIDR (IPv4)|bridge|interface prefix"
	nodePorts = "all addresses|primary|second|second (IPv6)|primary and loopback (IPv4)"
)

func name(all string, i int) string { return strings.Split(all, "|")[i] }

// of picks a family's address.
func (c Cell) of(v4, v6 string) netip.Addr {
	if c.V6 {
		return netip.MustParseAddr(v6)
	}
	return netip.MustParseAddr(v4)
}
