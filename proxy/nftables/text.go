package nftables

import (
	"fmt"
	"slices"
	"strings"
)

// Text prints the Program as a script for `nft -f` that replaces both tables.
func (p *Program) Text() string {
	var b strings.Builder
	elems := map[nameID][]Elem{}
	for _, e := range p.Elems() {
		id := nameID{e.V6, e.Kind.String()}
		elems[id] = append(elems[id], e)
	}
	for _, v6 := range p.families() {
		fmt.Fprintf(&b, "table %s %s\ndelete table %s %s\ntable %s %s {\n", ip(v6), TableName, ip(v6), TableName, ip(v6), TableName)
		for _, s := range p.Sets() {
			if s.V6 == v6 {
				s.declare(&b, elems[s.id()])
			}
		}
		for _, c := range p.Chains() {
			if c.V6 == v6 {
				c.declare(&b)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (s Set) declare(b *strings.Builder, elems []Elem) {
	word, _, _ := strings.Cut(s.declaration(), " ")
	fmt.Fprintf(b, "\t%s %s {\n", word, s.Name)
	for _, line := range s.body() {
		fmt.Fprintf(b, "\t\t%s\n", line)
	}
	if len(elems) > 0 {
		b.WriteString("\t\telements = {\n")
		for _, line := range elemLines(elems) {
			fmt.Fprintf(b, "\t\t\t%s,\n", line)
		}
		b.WriteString("\t\t}\n")
	}
	b.WriteString("\t}\n")
}

// elemLines prints elements in key order, so that equal Programs print equal.
func elemLines(elems []Elem) []string {
	sorted := slices.Clone(elems)
	slices.SortFunc(sorted, func(x, y Elem) int { return strings.Compare(x.Key, y.Key) })
	out := make([]string, len(sorted))
	for i, e := range sorted {
		out[i] = e.text()
	}
	return out
}

func (s Set) declaration() string {
	if s.Kind.Data() == NoData {
		return "set " + s.Name
	}
	return "map " + s.Name
}

// body is what stands between the braces of a declaration.
func (s Set) body() []string {
	switch {
	case s.Kind == Clients:
		return []string{"type " + s.types(), "size " + fmt.Sprint(MaxClients), "flags dynamic,timeout"}
	case s.Kind.Data() == ClassOf:
		body := []string{fmt.Sprintf("typeof %s : meta priority", s.Kind.fieldsText(s.V6))}
		return s.counted(body)
	case s.Kind == Classes:
		return []string{"typeof meta priority : verdict"}
	case s.Kind.Interval():
		return []string{"type " + s.types(), "flags interval"}
	case s.Kind.Data() == Verdict:
		return s.counted([]string{"type " + s.types() + " : verdict"})
	case s.Kind.Data() == Target:
		return []string{fmt.Sprintf("typeof %s : %s daddr . th dport", s.typeof(), ip(s.V6))}
	}
	return []string{"type " + s.types()}
}

func (s Set) counted(body []string) []string {
	if s.Counter {
		return append(body, "counter")
	}
	return body
}

// MaxClients is how many clients a Service with session affinity remembers per
// endpoint; a client beyond is served but not remembered.
const MaxClients = 65535

func (s Set) types() string {
	var parts []string
	for _, f := range s.Kind.Fields() {
		switch f {
		case Saddr, Daddr:
			parts = append(parts, map[bool]string{false: "ipv4_addr", true: "ipv6_addr"}[s.V6])
		case L4Proto:
			parts = append(parts, "inet_proto")
		case Dport:
			parts = append(parts, "inet_service")
		}
	}
	return strings.Join(parts, " . ")
}

// typeof declares a key with an index. The key says tcp and the data th: with tcp in
// the data nft 1.0.6 narrows the first rule that uses the map to TCP.
func (s Set) typeof() string {
	return strings.ReplaceAll(s.Kind.fieldsText(s.V6), "th dport", "tcp dport")
}

func (c *Chain) declare(b *strings.Builder) {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Hook != NoHook {
		fmt.Fprintf(b, "\t\t%s\n", c.Hook.text())
	}
	for _, r := range c.Rules {
		fmt.Fprintf(b, "\t\t%s\n", r.Text(c.V6))
	}
	b.WriteString("\t}\n")
}

func (h Hook) text() string {
	// nft knows the word dstnat in hook prerouting only.
	return fmt.Sprintf("type nat hook %s priority %d; policy accept;", h, h.Priority())
}
