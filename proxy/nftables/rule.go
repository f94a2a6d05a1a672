package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairway/packet"
)

// Rule is a line of a chain: its expressions in order, matches before the statement.
type Rule []Expr

// Expr is one of the shapes below and no other; the kernel package writes each of them
// as netlink expressions. All are comparable.
type Expr interface {
	text(v6 bool) string
	eval(t *tracer, f *flow) effect
}

// Equal compares rules.
func (r Rule) Equal(o Rule) bool { return slices.Equal(r, o) }

// Text prints the rule as nft does.
func (r Rule) Text(v6 bool) string {
	parts := make([]string, len(r))
	for i, e := range r {
		parts[i] = e.text(v6)
	}
	return strings.Join(parts, " ")
}

// VMap looks the key up in a verdict map and goes to the chain found.
type VMap struct{ Set Kind }

// SetClass looks the key up in a map of classes and keeps what it finds as the packet's
// priority; without an element the rule does not match.
type SetClass struct{ Set Kind }

// SetIndex makes an index below N the packet's priority.
type SetIndex struct {
	N    uint32
	Pick Pick
}

// ClearPriority undoes SetClass and SetIndex, before the packet is queued.
type ClearPriority struct{}

// DNATMap rewrites the destination to a target of the map.
type DNATMap struct{ Set Kind }

// FirstIndex is what index 0 is as a priority.
const FirstIndex uint32 = firstIndex

// Pick is how an index is come by.
type Pick uint8

// The index is a random number, the next in turn, or a hash of the source address.
const (
	Randomly Pick = iota
	InTurn
	BySource
)

// HashSeed is what source addresses are hashed with: the same on every node, so that a
// client whose packets come by another node meets the same endpoint.
const HashSeed uint32 = 0x46616972

// InSet matches when the key is in the set, or with Not when it is not.
type InSet struct {
	Set Kind
	Not bool
}

// Addr matches a source or destination address against a prefix.
type Addr struct {
	Field  Field
	Prefix netip.Prefix
	Not    bool
}

// Iif matches the name of the incoming interface, or its beginning.
type Iif struct {
	Name   string
	Prefix bool
	Not    bool
}

// FibLocal matches when the address is one of this node's.
type FibLocal struct{ Field Field }

// HasMark matches a bit of the packet mark.
type HasMark struct{ Bit uint32 }

// SetMark sets a bit of the packet mark, FlipMark inverts it.
type SetMark struct{ Bit uint32 }

// FlipMark inverts a bit of the packet mark.
type FlipMark struct{ Bit uint32 }

// DNATed matches flows whose destination was rewritten.
type DNATed struct{}

// Masquerade replaces the source by the outgoing interface's address.
type Masquerade struct{}

// OneIn matches one packet in N, at random or in turn.
type OneIn struct {
	N    uint32
	Pick Pick
}

// HashIs matches sources whose hash is I of N.
type HashIs struct{ N, I uint32 }

// Known matches sources in a Clients set.
type Known struct{ Set string }

// Learn puts the source into a Clients set, or renews it there.
type Learn struct {
	Set     string
	Timeout time.Duration
}

// DNAT rewrites the destination of one protocol.
type DNAT struct {
	Proto packet.Protocol
	To    netip.AddrPort
}

// Goto and Jump continue in another chain; only Jump comes back.
type Goto struct{ Chain string }

// Jump continues in another chain and comes back.
type Jump struct{ Chain string }

// Drop discards the packet silently.
type Drop struct{}

// Reject answers with an ICMP port unreachable, TCP included: the client's connect
// fails with "connection refused".
type Reject struct{}

// Other is a rule of somebody else in our table, found in the kernel.
type Other struct{ What string }

func ip(v6 bool) string {
	if v6 {
		return "ip6"
	}
	return "ip"
}

func (f Field) text(v6 bool) string {
	switch f {
	case Saddr:
		return ip(v6) + " saddr"
	case Daddr:
		return ip(v6) + " daddr"
	case L4Proto:
		return "meta l4proto"
	case Class, Index:
		return "meta priority"
	}
	return "th dport"
}

// text prints the number below n.
func (p Pick) text(v6 bool, n uint32) string {
	switch p {
	case InTurn:
		return fmt.Sprintf("numgen inc mod %d", n)
	case BySource:
		return fmt.Sprintf("jhash %s saddr mod %d seed 0x%x", ip(v6), n, HashSeed)
	}
	return fmt.Sprintf("numgen random mod %d", n)
}

// fieldsText prints a key.
func (k Kind) fieldsText(v6 bool) string {
	var parts []string
	for _, f := range k.Fields() {
		parts = append(parts, f.text(v6))
	}
	return strings.Join(parts, " . ")
}

func not(b bool) string {
	if b {
		return "!= "
	}
	return ""
}

func (e VMap) text(v6 bool) string {
	return fmt.Sprintf("%s vmap @%s", e.Set.fieldsText(v6), e.Set)
}

func (e SetClass) text(v6 bool) string {
	return fmt.Sprintf("meta priority set %s map @%s", e.Set.fieldsText(v6), e.Set)
}

func (e SetIndex) text(v6 bool) string {
	return fmt.Sprintf("meta priority set %s offset %d", e.Pick.text(v6, e.N), FirstIndex)
}

func (ClearPriority) text(bool) string { return "meta priority set none" }

func (e DNATMap) text(v6 bool) string {
	return fmt.Sprintf("dnat %s to %s map @%s", ip(v6), e.Set.fieldsText(v6), e.Set)
}

func (e InSet) text(v6 bool) string {
	return fmt.Sprintf("%s %s@%s", e.Set.fieldsText(v6), not(e.Not), e.Set)
}

func (e Addr) text(v6 bool) string {
	return fmt.Sprintf("%s %s%s", e.Field.text(v6), not(e.Not), prefixText(e.Prefix))
}

func (e Iif) text(bool) string {
	if e.Prefix {
		return fmt.Sprintf("iifname %s\"%s*\"", not(e.Not), e.Name)
	}
	return fmt.Sprintf("iifname %s%q", not(e.Not), e.Name)
}

func (e FibLocal) text(bool) string {
	if e.Field == Saddr {
		return "fib saddr type local"
	}
	return "fib daddr type local"
}

func (e HasMark) text(bool) string   { return fmt.Sprintf("meta mark & 0x%08x != 0x00000000", e.Bit) }
func (e SetMark) text(bool) string   { return fmt.Sprintf("meta mark set meta mark | 0x%08x", e.Bit) }
func (e FlipMark) text(bool) string  { return fmt.Sprintf("meta mark set meta mark ^ 0x%08x", e.Bit) }
func (DNATed) text(bool) string      { return "ct status dnat" }
func (Masquerade) text(bool) string  { return "masquerade fully-random" }
func (e OneIn) text(v6 bool) string  { return e.Pick.text(v6, e.N) + " 0" }
func (e HashIs) text(v6 bool) string { return fmt.Sprintf("%s %d", BySource.text(v6, e.N), e.I) }
func (e Known) text(v6 bool) string  { return fmt.Sprintf("%s saddr @%s", ip(v6), e.Set) }
func (e Goto) text(bool) string      { return "goto " + e.Chain }
func (e Jump) text(bool) string      { return "jump " + e.Chain }
func (Drop) text(bool) string        { return "drop" }
func (Reject) text(bool) string      { return "reject" }
func (e Other) text(bool) string     { return e.What }

func (e Learn) text(v6 bool) string {
	return fmt.Sprintf("update @%s { %s saddr timeout %ds }", e.Set, ip(v6), int(e.Timeout/time.Second))
}

func (e DNAT) text(bool) string {
	return fmt.Sprintf("meta l4proto %s dnat to %s", e.Proto, e.To)
}

// Refers lists the sets and the chain a rule needs to be there.
func (r Rule) Refers() (sets []string, chain string) {
	for _, e := range r {
		switch e := e.(type) {
		case VMap:
			sets = append(sets, e.Set.String())
		case SetClass:
			sets = append(sets, e.Set.String())
		case DNATMap:
			sets = append(sets, e.Set.String())
		case InSet:
			sets = append(sets, e.Set.String())
		case Known:
			sets = append(sets, e.Set)
		case Learn:
			sets = append(sets, e.Set)
		case Goto:
			chain = e.Chain
		case Jump:
			chain = e.Chain
		}
	}
	return sets, chain
}
