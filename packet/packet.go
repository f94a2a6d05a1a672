// Package packet holds the words every trace speaks: a Packet goes in, a Verdict
// with its Steps comes out. It holds values only; it never looks at rules, objects
// or the network.
package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Protocol is a transport protocol in the lower-case form rule languages use.
type Protocol string

// The transports a Service port can have (core/v1 Protocol).
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// Number is the IP protocol number (RFC 9293, 768, 9260), 0 when unknown.
func (p Protocol) Number() uint8 {
	switch p {
	case TCP:
		return 6
	case UDP:
		return 17
	case SCTP:
		return 132
	}
	return 0
}

// ParseProtocol accepts tcp, udp and sctp in any case.
func ParseProtocol(s string) (Protocol, error) {
	switch p := Protocol(strings.ToLower(s)); p {
	case TCP, UDP, SCTP:
		return p, nil
	}
	return "", fmt.Errorf("protocol %q: want tcp, udp or sctp", s)
}

// Packet is the first packet of a flow as the node sees it before any rule.
type Packet struct {
	Src   netip.Addr
	Dst   netip.AddrPort
	Proto Protocol
	// In is the interface the packet came in by; empty for one the node itself sends.
	In string
	// Local says the node itself sends it (hook output rather than prerouting).
	Local bool
	// OnNode says a process of this node opened the socket, the node's own or a pod's.
	OnNode bool
}

func (p Packet) String() string {
	return fmt.Sprintf("%s %s > %s", p.Proto, p.Src, p.Dst)
}

// Action is what happens to a packet.
type Action string

// The four fates. Pass means no Service rule claims the packet.
const (
	Forward Action = "forward"
	Reject  Action = "reject"
	Drop    Action = "drop"
	Pass    Action = "pass"
)

// Choice is one endpoint a flow may reach, and whether its source is then replaced
// by the node's address.
type Choice struct {
	Endpoint   netip.AddrPort
	Masquerade bool
}

func (c Choice) String() string {
	if c.Masquerade {
		return c.Endpoint.String() + " masquerade"
	}
	return c.Endpoint.String()
}

// Step is one line of a trace: where (table, chain, map, record, route) and why.
type Step struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// Verdict is the fate of a Packet. Choices are sorted and non-empty only for
// Forward. Affinity says that after the first flow the client stays with its choice.
type Verdict struct {
	Action   Action
	Choices  []Choice
	Affinity bool
	Steps    []Step
}

// Equal compares fates and ignores Steps, which differ between backends.
func (v Verdict) Equal(o Verdict) bool {
	return v.Action == o.Action && v.Affinity == o.Affinity && slices.Equal(v.Choices, o.Choices)
}

// Sorted returns v with Choices in address order, the form Equal expects.
func (v Verdict) Sorted() Verdict {
	v.Choices = slices.Clone(v.Choices)
	slices.SortFunc(v.Choices, func(a, b Choice) int { return a.Endpoint.Compare(b.Endpoint) })
	return v
}

func (v Verdict) String() string {
	if v.Action != Forward {
		return string(v.Action)
	}
	parts := make([]string, len(v.Choices))
	for i, c := range v.Choices {
		parts[i] = c.String()
	}
	s := "forward to " + strings.Join(parts, ", ")
	if v.Affinity {
		s += " (sticky)"
	}
	return s
}
