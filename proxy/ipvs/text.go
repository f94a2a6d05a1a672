package ipvs

import (
	"maps"
	"slices"
	"strings"
)

// Text is a family's whole program in the order it is applied: sets, rules, virtual
// services, addresses.
func (p *Program) Text(v6 bool) string {
	family := "IPv4"
	if v6 {
		family = "IPv6"
	}
	return "# ipset save, " + family + "\n" + p.SetText(v6) +
		"# iptables-save, " + family + "\n" + p.RuleText(v6) +
		"# ipvsadm -S -n, " + family + "\n" + p.ServiceText(v6) +
		"# ip addr, " + family + "\n" + p.AddrText(v6)
}

// SetText is the sets as `ipset save` prints them, sorted.
func (p *Program) SetText(v6 bool) string {
	var l setLines
	st := p.State(v6)
	for s := range setCount {
		name := s.Name(v6)
		l.line("create", name, s.Header(v6))
		for _, e := range sortedElements(st.Sets[name].Elements) {
			l.add(name, e, st.Sets[name].Elements[e])
		}
	}
	return string(l.b)
}

// RuleText is the rules as iptables-save prints them, less what is others'.
func (p *Program) RuleText(v6 bool) string {
	var b strings.Builder
	rules := p.State(v6).Rules
	for _, table := range tableNames() {
		b.WriteString("*" + table + "\n")
		places := slices.DeleteFunc(slices.SortedFunc(maps.Keys(rules), Place.compare), func(at Place) bool { return at.Table != table })
		for _, at := range places {
			if at.ours() {
				b.WriteString(":" + at.Chain + " - [0:0]\n")
			}
		}
		for _, at := range places {
			for _, r := range rules[at] {
				b.WriteString("-A " + at.Chain + " " + r + "\n")
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// ServiceText is the virtual services as `ipvsadm -S -n` prints them.
func (p *Program) ServiceText(v6 bool) string {
	f := p.family(v6)
	var list []Service
	for _, one := range f.parts {
		list = append(list, f.set.services(one)...)
	}
	slices.SortFunc(list, func(a, b Service) int { return a.Key.Compare(b.Key) })
	var b strings.Builder
	for _, s := range list {
		b.WriteString(Op{Verb: AddService, Key: s.Key, Options: s.Options}.Text() + "\n")
		for _, a := range s.To {
			b.WriteString(Op{Verb: AddDestination, Key: s.Key, To: a, Weight: 1}.Text() + "\n")
		}
	}
	return b.String()
}

// AddrText is the addresses of Device as commands that add them. None is ever chosen as
// the source of other packets: IPv4 ones have the scope of the host, IPv6 ones are
// deprecated from the start.
func (p *Program) AddrText(v6 bool) string {
	var b strings.Builder
	for _, a := range p.family(v6).addrs {
		b.WriteString("ip addr add " + host(a).String() + " dev " + Device)
		if v6 {
			b.WriteString(" nodad preferred_lft 0\n")
		} else {
			b.WriteString(" scope host\n")
		}
	}
	return b.String()
}
