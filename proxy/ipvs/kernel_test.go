package ipvs

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// apply does to a State what the kernel would, and fails where the kernel would: on
// things made twice, on what is not there, on chains and sets in use.
func apply(t *testing.T, st *State, c *Change) {
	t.Helper()
	applySets(t, st, c.SetsBefore)
	applyRules(t, st, c.Rules)
	for _, o := range c.Services {
		applyOp(t, st, o)
	}
	for _, a := range c.BindAddrs {
		if st.Addrs[a] {
			t.Errorf("%s is bound twice", a)
		}
		st.Addrs[a] = true
	}
	for _, a := range c.UnbindAddrs {
		if !st.Addrs[a] {
			t.Errorf("%s is unbound and was not there", a)
		}
		delete(st.Addrs, a)
	}
	for _, o := range c.Removals {
		applyOp(t, st, o)
	}
	applySets(t, st, c.SetsAfter)
}

func applyOp(t *testing.T, st *State, o Op) {
	t.Helper()
	svc, there := st.Services[o.Key]
	_, dest := svc.To[o.To]
	if there == (o.Verb == AddService) || there && dest == (o.Verb == AddDestination) && o.To.IsValid() {
		t.Errorf("%s: service there: %v, destination there: %v", o.Text(), there, dest)
		return
	}
	switch o.Verb {
	case AddService:
		st.Services[o.Key] = ListedService{o.Options, map[netip.AddrPort]Destination{}}
	case EditService:
		svc.Options = o.Options
		st.Services[o.Key] = svc
	case DeleteService:
		delete(st.Services, o.Key)
	case DeleteDestination:
		delete(svc.To, o.To)
	default:
		svc.To[o.To] = Destination{Weight: o.Weight}
	}
}

func applySets(t *testing.T, st *State, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		set, there := st.Sets[f[1]]
		if there == (f[0] == "create") {
			t.Errorf("ipset %s: set there: %v", line, there)
			continue
		}
		switch f[0] {
		case "create":
			st.Sets[f[1]] = ListedSet{header(f[2:]), map[Element]uint32{}}
		case "destroy":
			for at, rules := range st.Rules {
				if strings.Contains(strings.Join(rules, " ")+" ", " "+f[1]+" ") {
					t.Errorf("%s is destroyed while %v uses it", f[1], at)
				}
			}
			delete(st.Sets, f[1])
		case "swap":
			st.Sets[f[1]], st.Sets[f[2]] = st.Sets[f[2]], st.Sets[f[1]]
		default:
			e, err := ParseElement(f[2])
			if err != nil || e.Text() != f[2] {
				t.Errorf("%s: %v, read as %s", line, err, e.Text())
			}
			if _, in := set.Elements[e]; f[0] == "del" && !in {
				t.Errorf("ipset %s: not there", line)
			}
			delete(set.Elements, e)
			if f[0] == "add" {
				set.Elements[e] = skbmark(f[3:])
			}
		}
	}
}

func applyRules(t *testing.T, st *State, text string) {
	t.Helper()
	table := ""
	for _, line := range strings.Split(text, "\n") {
		verb, rest, _ := strings.Cut(line, " ")
		chain, rule, _ := strings.Cut(rest, " ")
		at := Place{table, chain}
		switch {
		case line == "" || line == "COMMIT":
		case line[0] == '*':
			table = line[1:]
		case line[0] == ':':
			st.Rules[Place{table, verb[1:]}] = nil
		case verb == "-A":
			st.Rules[at] = append(st.Rules[at], rule)
		case verb == "-I":
			st.Rules[at] = append([]string{rule}, st.Rules[at]...)
		case verb == "-D":
			i := slices.Index(st.Rules[at], rule)
			if i < 0 {
				t.Errorf("%s: no such rule", line)
				continue
			}
			if st.Rules[at] = slices.Delete(st.Rules[at], i, i+1); len(st.Rules[at]) == 0 {
				delete(st.Rules, at)
			}
		case verb == "-X":
			delete(st.Rules, at)
		default:
			t.Errorf("%q is nothing iptables-restore takes", line)
		}
	}
}
