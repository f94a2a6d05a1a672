// Package iptables compiles a proxy.Plan into the rules of kube-proxy's iptables mode:
// a Plan goes in, a Program of tables, chains and typed rules for each IP family comes
// out, which can be printed as an iptables-restore file, compared with another Program
// or with what iptables-save lists, and walked by a packet. It holds no policy of its
// own and never runs a command.
package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"fairway/packet"
)

// Rule is one rule of the closed set this package writes: each field is a match that
// is absent when zero, and Target is what happens when all match. Rules are compared
// with ==.
type Rule struct {
	Comment  string
	Proto    packet.Protocol
	Src, Dst Net
	DPort    uint16
	In       Iface
	// SrcLocal and DstLocal ask whether the address is one of the node's (addrtype).
	SrcLocal, DstLocal bool
	State              State
	// SentHere asks whether the destination is still the one the packet was sent to: no DNAT
	// changed it (conntrack).
	SentHere bool
	Mark     Mark
	// OneIn matches one packet in so many, at random (statistic). The kernel holds
	// the probability in 31 bits.
	OneIn uint32
	// Every matches each so manieth packet, the first among them (statistic).
	Every  uint32
	Recent Recent
	// Counter is an nfacct object that counts the packets matched so far.
	Counter string
	Target  Target
	// Raw is a listed rule this package would never write, kept as listed.
	Raw string
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

// Mark matches packets that carry Bits in their mark.
type Mark struct {
	Bits uint32
	Not  bool
}

// Recent is a source address list (xt_recent): Seconds 0 adds the source to it, else
// the rule matches a source added within Seconds.
type Recent struct {
	Name    string
	Seconds uint32
}

// State matches conntrack states.
type State struct {
	Bits StateBits
	Not  bool
}

// StateBits is a set of conntrack states.
type StateBits uint8

// The states in iptables-save's order.
const (
	Invalid StateBits = 1 << iota
	New
	Related
	Established
	DNATed
)

func (s StateBits) String() string {
	var out []string
	for i, name := range stateNames() {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

func stateNames() []string { return []string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "DNAT"} }

// Verb is a target's kind.
type Verb uint8

// The targets used. None falls through to the next rule.
const (
	None Verb = iota
	Jump
	Accept
	Drop
	Reject
	Return
	OrMark
	XorMark
	Masquerade
	DNAT
)

// Target is what a matching rule does: Chain belongs to Jump, Bits to OrMark and
// XorMark, To to DNAT.
type Target struct {
	Verb  Verb
	Chain string
	Bits  uint32
	To    netip.AddrPort
}

func jump(chain string) Target { return Target{Verb: Jump, Chain: chain} }

// Chain is a named list of rules.
type Chain struct {
	Name  string
	Rules []Rule
}

// Text is the rule in kube-proxy's own words, as iptables-restore reads it, without
// `-A CHAIN`.
func (r Rule) Text() string { return string(r.append(nil)) }

func (r Rule) append(b []byte) []byte {
	if r.Raw != "" {
		return append(b, r.Raw...)
	}
	if r.State.Bits == New {
		b = r.State.append(b)
	}
	if r.SentHere {
		b = State{Bits: DNATed, Not: true}.append(b)
	}
	if r.Comment != "" {
		b = append(b, "-m comment --comment "...)
		b = appendQuoted(b, r.Comment)
		b = append(b, ' ')
	}
	b = r.Recent.append(b)
	if r.DstLocal {
		b = append(b, "-m addrtype --dst-type LOCAL "...)
	}
	if r.SrcLocal {
		b = append(b, "-m addrtype --src-type LOCAL "...)
	}
	b = r.appendAddresses(b)
	if r.State.Bits != 0 && r.State.Bits != New {
		b = r.State.append(b)
	}
	if r.Mark.Bits != 0 {
		b = append(b, "-m mark "...)
		b = not(b, r.Mark.Not)
		b = append(b, "--mark "...)
		b = append(appendHex(b, r.Mark.Bits), '/')
		b = append(appendHex(b, r.Mark.Bits), ' ')
	}
	if r.OneIn != 0 {
		b = append(b, "-m statistic --mode random --probability "...)
		b = append(strconv.AppendFloat(b, 1/float64(r.OneIn), 'f', 10, 64), ' ')
	}
	if r.Every != 0 {
		b = append(b, "-m statistic --mode nth --every "...)
		b = append(strconv.AppendUint(b, uint64(r.Every), 10), " --packet 0 "...)
	}
	if r.Counter != "" {
		b = append(b, "-m nfacct --nfacct-name "...)
		b = append(append(b, r.Counter...), ' ')
	}
	return r.Target.append(b)
}

func (r Rule) appendAddresses(b []byte) []byte {
	if r.Proto != "" {
		b = append(append(b, "-m "...), r.Proto...)
		b = append(append(b, " -p "...), r.Proto...)
		b = append(b, ' ')
	}
	b = r.Dst.append(b, "-d ")
	if r.DPort != 0 {
		b = append(b, "--dport "...)
		b = append(strconv.AppendUint(b, uint64(r.DPort), 10), ' ')
	}
	b = r.Src.append(b, "-s ")
	if r.In.Name != "" {
		b = not(b, r.In.Not)
		b = append(append(b, "-i "...), r.In.Name...)
		b = append(b, ' ')
	}
	return b
}

func not(b []byte, yes bool) []byte {
	if yes {
		return append(b, "! "...)
	}
	return b
}

func (n Net) append(b []byte, flag string) []byte {
	if !n.IsValid() {
		return b
	}
	b = append(not(b, n.Not), flag...)
	if n.IsSingleIP() {
		b = n.Addr().AppendTo(b)
	} else {
		b = n.Prefix.AppendTo(b)
	}
	return append(b, ' ')
}

func (s State) append(b []byte) []byte {
	b = append(b, "-m conntrack "...)
	b = not(b, s.Not)
	b = append(b, "--ctstate "...)
	return append(append(b, s.Bits.String()...), ' ')
}

func (r Recent) append(b []byte) []byte {
	if r.Name == "" {
		return b
	}
	b = append(append(b, "-m recent --name "...), r.Name...)
	if r.Seconds == 0 {
		return append(b, " --set "...)
	}
	b = strconv.AppendUint(append(b, " --rcheck --seconds "...), uint64(r.Seconds), 10)
	return append(b, " --reap "...)
}

func (t Target) append(b []byte) []byte {
	switch t.Verb {
	case Jump:
		return append(append(b, "-j "...), t.Chain...)
	case Accept:
		return append(b, "-j ACCEPT"...)
	case Drop:
		return append(b, "-j DROP"...)
	case Reject:
		return append(b, "-j REJECT"...)
	case Return:
		return append(b, "-j RETURN"...)
	case OrMark:
		return appendHex(append(b, "-j MARK --or-mark "...), t.Bits)
	case XorMark:
		return appendHex(append(b, "-j MARK --xor-mark "...), t.Bits)
	case Masquerade:
		return append(b, "-j MASQUERADE --random-fully"...)
	case DNAT:
		return t.To.AppendTo(append(b, "-j DNAT --to-destination "...))
	}
	if n := len(b); n > 0 && b[n-1] == ' ' {
		b = b[:n-1]
	}
	return b
}

func appendHex(b []byte, v uint32) []byte {
	return strconv.AppendUint(append(b, "0x"...), uint64(v), 16)
}

// appendQuoted writes a comment as kube-proxy does: in quotes when it holds a space.
func appendQuoted(b []byte, s string) []byte {
	quote := strings.Contains(s, " ")
	if quote {
		b = append(b, '"')
	}
	b = append(b, s...)
	if quote {
		b = append(b, '"')
	}
	return b
}

// clean is a comment as it can be written and read back: characters that could end the
// quotes or the line, which only unchecked manifest files can bring, are replaced.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\'' || r == '\\' {
			return '_'
		}
		return r
	}, s)
}

// cut keeps the longest comment a name is put into under xt_comment's 256 bytes.
func cut(name string) string { return name[:min(len(name), 180)] }
