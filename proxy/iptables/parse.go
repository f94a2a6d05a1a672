package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"fairway/packet"
)

// Parse reads what iptables-save printed for one family. Rules of a form this package
// never writes are kept raw; chains of others are kept too, so that a Trace of the
// listing is the kernel's own, but never compared or deleted.
func Parse(save string, v6 bool) (*Program, error) {
	p := &Program{}
	f := p.family(v6)
	f.set.v6 = v6
	f.listed = []Table{}
	var t *Table
	index := map[string]int{}
	for n := 1; save != ""; n++ {
		var line string
		line, save, _ = strings.Cut(save, "\n")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line == "COMMIT":
			continue
		case line[0] == '*':
			f.listed = append(f.listed, Table{Name: line[1:]})
			t = &f.listed[len(f.listed)-1]
			clear(index)
			continue
		case t == nil:
			return nil, fmt.Errorf("iptables-save line %d: %q stands before any table", n, line)
		}
		if err := t.readLine(line, index); err != nil {
			return nil, fmt.Errorf("iptables-save line %d: %w", n, err)
		}
	}
	return p, nil
}

func (t *Table) readLine(line string, index map[string]int) error {
	if line[0] == ':' {
		name, _, _ := strings.Cut(line[1:], " ")
		t.chain(name, index)
		return nil
	}
	if line[0] == '[' { // counters
		_, rest, ok := strings.Cut(line, "] ")
		if !ok {
			return fmt.Errorf("%q is no rule", line)
		}
		line = rest
	}
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return fmt.Errorf("%q is no rule", line)
	}
	name, text, _ := strings.Cut(rest, " ")
	i := t.chain(name, index)
	t.Chains[i].Rules = append(t.Chains[i].Rules, ParseRule(text))
	return nil
}

func (t *Table) chain(name string, index map[string]int) int {
	i, ok := index[name]
	if !ok {
		i = len(t.Chains)
		index[name] = i
		t.Chains = append(t.Chains, Chain{Name: name})
	}
	return i
}

// ParseRule reads one rule without its `-A CHAIN`, in the form of iptables-save or of
// iptables-restore.
func ParseRule(text string) Rule {
	words, ok := split(text)
	r := ruleReader{words: words}
	for ok && len(r.words) > 0 {
		ok = r.option()
	}
	if !ok || r.not {
		return Rule{Raw: text}
	}
	return r.rule
}

// split cuts a rule into words. Only comments are ever quoted; in quotes a backslash
// takes the next byte as it is.
func split(text string) ([]string, bool) {
	var words []string
	for {
		text = strings.TrimLeft(text, " ")
		if text == "" {
			return words, true
		}
		if text[0] != '"' {
			var w string
			w, text, _ = strings.Cut(text, " ")
			if strings.ContainsAny(w, "\"\\") {
				return nil, false
			}
			words = append(words, w)
			continue
		}
		if len(words) == 0 || words[len(words)-1] != "--comment" {
			return nil, false
		}
		var b strings.Builder
		i := 1
		for ; i < len(text) && text[i] != '"'; i++ {
			if text[i] == '\\' && i+1 < len(text) {
				i++
			}
			b.WriteByte(text[i])
		}
		if i >= len(text) {
			return nil, false
		}
		words, text = append(words, b.String()), text[i+1:]
	}
}

// ruleReader takes options off the front of words; not is a pending "!".
type ruleReader struct {
	words []string
	not   bool
	rule  Rule
}

func (r *ruleReader) next() string {
	if len(r.words) == 0 {
		return ""
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

func (r *ruleReader) peek(word string) bool { return len(r.words) > 0 && r.words[0] == word }

// option reads one option with its values; false means it is none of ours.
func (r *ruleReader) option() bool {
	if r.peek("!") {
		r.next()
		if r.not {
			return false
		}
		r.not = true
		return true
	}
	flag := r.next()
	if ok, known := r.negatable(flag); known {
		r.not = false
		return ok
	}
	if r.not {
		return false
	}
	return r.plain(flag)
}

// negatable reads the options a "!" may stand before.
func (r *ruleReader) negatable(flag string) (ok, known bool) {
	switch flag {
	case "-s":
		r.rule.Src, ok = parseNet(r.next(), r.not)
	case "-d":
		r.rule.Dst, ok = parseNet(r.next(), r.not)
	case "-i":
		r.rule.In = Iface{r.next(), r.not}
		ok = r.rule.In.Name != ""
	case "--ctstate":
		ok = r.state(r.next())
	case "--mark":
		value, mask, good := parseMark(r.next())
		ok = good && value == mask && value != 0
		r.rule.Mark = Mark{value, r.not}
	default:
		return false, false
	}
	return ok, true
}

// state reads a set of conntrack states. After another set only "not DNAT" is ours.
func (r *ruleReader) state(word string) bool {
	bits, ok := parseStates(word)
	switch s := (State{Bits: bits, Not: r.not}); {
	case !ok:
		return false
	case r.rule.State.Bits == 0:
		r.rule.State = s
		return true
	case r.rule.State == State{Bits: New} && s == State{Bits: DNATed, Not: true} && !r.rule.SentHere:
		r.rule.SentHere = true
		return true
	}
	return false
}

func (r *ruleReader) plain(flag string) bool {
	switch flag {
	case "-m":
		return r.module(r.next())
	case "-p":
		r.rule.Proto = packet.Protocol(r.next())
		return r.rule.Proto.Number() != 0
	case "--comment":
		r.rule.Comment = r.next()
		return r.rule.Comment != "" && r.rule.Comment == clean(r.rule.Comment)
	case "--dport":
		return parseUint(r.next(), 16, &r.rule.DPort)
	case "--dst-type":
		r.rule.DstLocal = true
		return r.next() == "LOCAL"
	case "--src-type":
		r.rule.SrcLocal = true
		return r.next() == "LOCAL"
	case "--mode":
		m := r.next()
		return m == "random" || m == "nth"
	case "--every":
		return parseUint(r.next(), 32, &r.rule.Every) && r.rule.Every > 1
	case "--packet":
		return r.next() == "0" && r.rule.Every > 1
	case "--probability":
		var ok bool
		r.rule.OneIn, ok = parseProbability(r.next())
		return ok
	case "--nfacct-name":
		r.rule.Counter = r.next()
		return r.rule.Counter != ""
	case "-j":
		return r.target(r.next())
	}
	return r.recent(flag)
}

func (r *ruleReader) module(name string) bool {
	switch name {
	case "comment", "tcp", "udp", "sctp", "recent", "addrtype", "conntrack", "mark", "statistic", "nfacct":
		return true
	}
	return false
}

func (r *ruleReader) recent(flag string) bool {
	switch flag {
	case "--name":
		r.rule.Recent.Name = r.next()
		return r.rule.Recent.Name != ""
	case "--seconds":
		return parseUint(r.next(), 32, &r.rule.Recent.Seconds) && r.rule.Recent.Seconds > 0
	case "--mask":
		m := r.next()
		return m == "255.255.255.255" || m == "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	case "--rcheck", "--reap", "--set", "--rsource":
		return true
	}
	return false
}

func (r *ruleReader) target(name string) bool {
	if name == "" || r.rule.Target.Verb != None {
		return false
	}
	t := &r.rule.Target
	switch name {
	case "ACCEPT":
		t.Verb = Accept
	case "DROP":
		t.Verb = Drop
	case "RETURN":
		t.Verb = Return
	case "REJECT":
		t.Verb = Reject
		if r.peek("--reject-with") {
			r.next()
			with := r.next()
			return with == "icmp-port-unreachable" || with == "icmp6-port-unreachable"
		}
	case "MASQUERADE":
		t.Verb = Masquerade
		return r.next() == "--random-fully"
	case "DNAT":
		t.Verb = DNAT
		return r.next() == "--to-destination" && parseTo(r.next(), &t.To)
	case "MARK":
		return r.setMark(r.next())
	default:
		*t = jump(name)
		return name == strings.Trim(name, "-!")
	}
	return true
}

// setMark knows that --or-mark and --xor-mark are listed as --set-xmark value/mask.
func (r *ruleReader) setMark(how string) bool {
	value, mask, ok := parseMark(r.next())
	t := &r.rule.Target
	t.Bits = value
	switch {
	case !ok || value == 0:
		return false
	case how == "--or-mark", how == "--set-xmark" && mask == value:
		t.Verb = OrMark
	case how == "--xor-mark", how == "--set-xmark" && mask == 0:
		t.Verb = XorMark
	default:
		return false
	}
	return true
}

func parseNet(s string, not bool) (Net, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return Net{netip.PrefixFrom(a, a.BitLen()), not}, true
	}
	p, err := netip.ParsePrefix(s)
	return Net{p, not}, err == nil
}

func parseTo(s string, to *netip.AddrPort) bool {
	a, err := netip.ParseAddrPort(s)
	*to = a
	return err == nil && a.Addr().Zone() == ""
}

func parseStates(s string) (StateBits, bool) {
	var out StateBits
	for _, word := range strings.Split(s, ",") {
		found := false
		for i, name := range stateNames() {
			if name == word {
				out |= 1 << i
				found = true
			}
		}
		if !found {
			return 0, false
		}
	}
	return out, true
}

func parseMark(s string) (value, mask uint32, ok bool) {
	v, m, masked := strings.Cut(s, "/")
	n, err := strconv.ParseUint(v, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	if !masked {
		return uint32(n), math.MaxUint32, true
	}
	k, err := strconv.ParseUint(m, 0, 32)
	return uint32(n), uint32(k), err == nil
}

// parseProbability finds n for which 1/n is what the kernel holds, in its 31 bits.
func parseProbability(s string) (uint32, bool) {
	p, err := strconv.ParseFloat(s, 64)
	if err != nil || !(p > 0 && p <= 1) {
		return 0, false
	}
	held := math.Round(p * (1 << 31))
	n := math.Round((1 << 31) / held)
	if n < 2 || n > math.MaxUint32 || math.Abs((1<<31)/n-held) > 1 {
		return 0, false
	}
	return uint32(n), true
}

func parseUint[T uint16 | uint32](s string, bits int, to *T) bool {
	n, err := strconv.ParseUint(s, 10, bits)
	*to = T(n)
	return err == nil
}
