package ipvs

import (
	"fmt"
	"net/netip"
	"strings"
)

// Rule is one rule of the closed set this package writes: each field is a match that is
// absent when zero, and Target is what happens when all match. Text is what
// iptables-save prints, so listings are compared as they are.
type Rule struct {
	Src, Dst Net
	In       Iface
	Proto    Proto
	// State is conntrack's, by name.
	State string
	Sets  []Match
	// SrcLocal and DstLocal ask whether the address is one of the node's.
	SrcLocal, DstLocal bool
	Mark               Mark
	Target             Target
}

// Net matches an address; the zero value matches all.
type Net struct {
	netip.Prefix
	Not bool
}

// Iface matches an incoming interface; a Name that ends in + is a prefix.
type Iface struct {
	Name string
	Not  bool
}

// Proto matches a protocol.
type Proto struct {
	Name string
	Not  bool
}

// Match asks whether a Set holds the packet; By says which of its addresses and ports.
type Match struct {
	Set Set
	By  string
	Not bool
}

// Mark matches the bits of Mask.
type Mark struct {
	Value, Mask uint32
	Not         bool
}

// Verb is a target's kind.
type Verb uint8

// The targets used. SetMark writes Value into the bits of Mask, or xors it in where Mask
// is 0; MapMark writes the mark that a Set holds for the packet, and changes nothing
// when it holds none.
const (
	Jump Verb = iota
	Accept
	Drop
	Reject
	Return
	SetMark
	MapMark
	Masquerade
)

// Target is what a matching rule does.
type Target struct {
	Verb        Verb
	Chain       string
	Value, Mask uint32
	Set         Set
}

// Chain is a named list of rules.
type Chain struct {
	Name  string
	Rules []Rule
}

// Text is the rule as iptables-save prints it, without `-A CHAIN`.
func (r Rule) Text(v6 bool) string {
	var w []string
	add := func(not bool, words ...string) {
		if not {
			w = append(w, "!")
		}
		w = append(w, words...)
	}
	if r.Src.IsValid() {
		add(r.Src.Not, "-s", r.Src.String())
	}
	if r.Dst.IsValid() {
		add(r.Dst.Not, "-d", r.Dst.String())
	}
	if r.In.Name != "" {
		add(r.In.Not, "-i", r.In.Name)
	}
	if r.Proto.Name != "" {
		add(r.Proto.Not, "-p", r.Proto.Name)
	}
	if r.State != "" {
		w = append(w, "-m conntrack --ctstate", r.State)
	}
	for _, m := range r.Sets {
		w = append(w, "-m set")
		add(m.Not, "--match-set", m.Set.Name(v6), m.By)
	}
	if r.SrcLocal {
		w = append(w, "-m addrtype --src-type LOCAL")
	}
	if r.DstLocal {
		w = append(w, "-m addrtype --dst-type LOCAL")
	}
	if r.Mark.Mask != 0 {
		w = append(w, "-m mark")
		add(r.Mark.Not, "--mark", fmt.Sprintf("0x%x/0x%x", r.Mark.Value, r.Mark.Mask))
	}
	return strings.Join(append(w, "-j "+r.Target.text(v6)), " ")
}

func (t Target) text(v6 bool) string {
	switch t.Verb {
	case Accept:
		return "ACCEPT"
	case Drop:
		return "DROP"
	case Reject:
		if v6 {
			return "REJECT --reject-with icmp6-port-unreachable"
		}
		return "REJECT --reject-with icmp-port-unreachable"
	case Return:
		return "RETURN"
	case SetMark:
		return fmt.Sprintf("MARK --set-xmark 0x%x/0x%x", t.Value, t.Mask)
	case MapMark:
		return "SET --map-set " + t.Set.Name(v6) + " dst,dst --map-mark"
	case Masquerade:
		return "MASQUERADE --random-fully"
	}
	return t.Chain
}
