package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// State is one family written out, as the kernel lists it or as a Program wants it.
type State struct {
	V6       bool
	Services map[ServiceKey]ListedService
	Sets     map[string]ListedSet
	Addrs    map[netip.Addr]bool
	// Rules are the rules' texts by table and chain: our chains whole, of the kernel's
	// those that jump to ours.
	Rules map[Place][]string
	// Leftovers are chains of a kube-proxy in IPVS mode that have no use here, likewise.
	Leftovers map[Place][]string
}

// Place is a chain of a table.
type Place struct{ Table, Chain string }

// ListedService is a virtual service in the kernel.
type ListedService struct {
	Options
	To map[netip.AddrPort]Destination
}

// Destination is what the kernel tells of one: connections count as active while data
// may flow, as inactive while they end.
type Destination struct {
	Weight           int
	Active, Inactive int
}

// ListedSet is an ipset; Marks holds the marks of elements that have one.
type ListedSet struct {
	Header   string
	Elements map[Element]uint32
}

// NewState is an empty one.
func NewState(v6 bool) *State {
	return &State{V6: v6, Services: map[ServiceKey]ListedService{}, Sets: map[string]ListedSet{},
		Addrs: map[netip.Addr]bool{}, Rules: map[Place][]string{}, Leftovers: map[Place][]string{}}
}

// State writes a family out.
func (p *Program) State(v6 bool) *State {
	f := p.family(v6)
	st := NewState(v6)
	for s := range setCount {
		st.Sets[s.Name(v6)] = ListedSet{s.Header(v6), map[Element]uint32{}}
	}
	for _, one := range f.parts {
		for _, svc := range f.set.services(one) {
			l := ListedService{svc.Options, make(map[netip.AddrPort]Destination, len(svc.To))}
			for _, a := range svc.To {
				l.To[a] = Destination{Weight: 1}
			}
			st.Services[svc.Key] = l
		}
		for _, m := range f.set.members(one) {
			st.Sets[m.set.Name(v6)].Elements[m.elem] = m.mark
		}
	}
	for _, a := range f.addrs {
		st.Addrs[a] = true
		st.Sets[IPVSIPs.Name(v6)].Elements[Element{Addr: a}] = 0
	}
	for _, h := range hooks() {
		at := Place{h.table, h.chain}
		st.Rules[at] = append([]string{h.rule.Text(v6)}, st.Rules[at]...)
	}
	for _, t := range f.set.tables() {
		for _, c := range t.Chains {
			texts := make([]string, len(c.Rules))
			for i, r := range c.Rules {
				texts[i] = r.Text(v6)
			}
			st.Rules[Place{t.Name, c.Name}] = texts
		}
	}
	return st
}

// ReadSets reads what `ipset save` prints: sets of ours, and of others nothing.
func (st *State) ReadSets(save string) error {
	names := map[string]bool{}
	for s := range setCount {
		names[s.Name(st.V6)] = true
	}
	for _, line := range strings.Split(save, "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || !names[f[1]] {
			continue
		}
		switch f[0] {
		case "create":
			st.Sets[f[1]] = ListedSet{header(f[2:]), map[Element]uint32{}}
		case "add":
			e, err := ParseElement(f[2])
			if err != nil {
				return fmt.Errorf("ipset %s: %w", f[1], err)
			}
			st.Sets[f[1]].Elements[e] = skbmark(f[3:])
		}
	}
	return nil
}

// header leaves out of a listed set's options what the kernel chose.
func header(words []string) string {
	out := words[:1]
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "hashsize", "bucketsize", "initval":
			i++
		default:
			out = append(out, words[i])
		}
	}
	return strings.Join(out, " ")
}

func skbmark(words []string) uint32 {
	for i, w := range words[:max(0, len(words)-1)] {
		if w == "skbmark" {
			v, _, _ := strings.Cut(words[i+1], "/")
			n, _ := strconv.ParseUint(v, 0, 32)
			return uint32(n)
		}
	}
	return 0
}

// leftover tells whether a chain is one of kube-proxy's IPVS mode alone.
func leftover(chain string) bool {
	return slices.Contains([]string{"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-FIRE-WALL"}, chain)
}

// ReadRules reads what iptables-save prints.
func (st *State) ReadRules(save string) {
	table := ""
	for _, line := range strings.Split(save, "\n") {
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			if m := st.listOf(name); m != nil {
				m[Place{table, name}] = nil
			}
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[3:], " ")
			_, target, _ := strings.Cut(rule, "-j ")
			target, _, _ = strings.Cut(target, " ")
			for _, name := range []string{chain, target} {
				if m := st.listOf(name); m != nil {
					m[Place{table, chain}] = append(m[Place{table, chain}], rule)
					break
				}
			}
		}
	}
}

// listOf is where a chain and jumps to it are kept, nil for others'.
func (st *State) listOf(chain string) map[Place][]string {
	switch {
	case strings.HasPrefix(chain, chainPrefix):
		return st.Rules
	case leftover(chain):
		return st.Leftovers
	}
	return nil
}

// Empty tells whether nothing of ours is there.
func (st *State) Empty() bool {
	return len(st.Services)+len(st.Sets)+len(st.Addrs)+len(st.Rules)+len(st.Leftovers) == 0
}

func (p Place) ours() bool { return strings.HasPrefix(p.Chain, chainPrefix) || leftover(p.Chain) }

func (p Place) compare(o Place) int {
	if p.Table != o.Table {
		return slices.Index(tableNames(), p.Table) - slices.Index(tableNames(), o.Table)
	}
	return strings.Compare(p.Chain, o.Chain)
}
