package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Do does to a State what IPVS does with one operation: it refuses what is there twice
// and what is not there.
func (st *State) Do(o Op) error {
	svc, there := st.Services[o.Key]
	_, dest := svc.To[o.To]
	switch {
	case there == (o.Verb == AddService):
		return fmt.Errorf("%s: service there: %v", o.Text(), there)
	case o.To.IsValid() && dest == (o.Verb == AddDestination):
		return fmt.Errorf("%s: destination there: %v", o.Text(), dest)
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
		d := svc.To[o.To]
		d.Weight = o.Weight
		svc.To[o.To] = d
	}
	return nil
}

// Restore does what `ipset restore -exist` does with the lines this package writes, up
// to the first that fails. A set that a rule uses cannot be destroyed.
func (st *State) Restore(input string) error {
	for n, line := range strings.Split(input, "\n") {
		if f := strings.Fields(line); len(f) > 1 {
			if err := st.restoreLine(f); err != nil {
				return fmt.Errorf("line %d: %s: %w", n+1, line, err)
			}
		}
	}
	return nil
}

func (st *State) restoreLine(f []string) error {
	set, there := st.Sets[f[1]]
	if there == (f[0] == "create") {
		return fmt.Errorf("set there: %v", there)
	}
	switch f[0] {
	case "create":
		st.Sets[f[1]] = ListedSet{header(f[2:]), map[Element]uint32{}}
		return nil
	case "destroy":
		for at, rules := range st.Rules {
			if strings.Contains(strings.Join(rules, " ")+" ", " "+f[1]+" ") {
				return fmt.Errorf("%v uses it", at)
			}
		}
		delete(st.Sets, f[1])
		return nil
	case "swap":
		st.Sets[f[1]], st.Sets[f[2]] = st.Sets[f[2]], st.Sets[f[1]]
		return nil
	}
	e, err := ParseElement(f[2])
	if err != nil {
		return err
	}
	if f[0] == "add" {
		set.Elements[e] = skbmark(f[3:])
	} else {
		delete(set.Elements, e)
	}
	return nil
}

// RestoreRules does what `iptables-restore --noflush` does with the lines this package
// writes: all of them or, with an error, none.
func (st *State) RestoreRules(input string) error {
	was := map[Place][]string{}
	for at, rules := range st.Rules {
		was[at] = slices.Clone(rules)
	}
	table := ""
	for n, line := range strings.Split(input, "\n") {
		if strings.HasPrefix(line, "*") {
			table = line[1:]
		} else if err := st.ruleLine(table, line); err != nil {
			st.Rules = was
			return fmt.Errorf("line %d: %s: %w", n+1, line, err)
		}
	}
	return nil
}

func (st *State) ruleLine(table, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	chain, rule, _ := strings.Cut(rest, " ")
	at := Place{table, chain}
	switch {
	case line == "" || line == "COMMIT":
	case line[0] == ':':
		st.Rules[Place{table, verb[1:]}] = nil
	case verb == "-A" || verb == "-I":
		for _, word := range strings.Fields(rule) {
			if _, there := st.Sets[word]; strings.HasPrefix(word, "KUBE-") && !strings.HasPrefix(word, chainPrefix) && !there {
				return fmt.Errorf("no set %s", word)
			}
		}
		if verb == "-A" {
			st.Rules[at] = append(st.Rules[at], rule)
		} else {
			st.Rules[at] = append([]string{rule}, st.Rules[at]...)
		}
	case verb == "-D":
		i := slices.Index(st.Rules[at], rule)
		if i < 0 {
			return fmt.Errorf("no such rule")
		}
		if st.Rules[at] = slices.Delete(st.Rules[at], i, i+1); len(st.Rules[at]) == 0 {
			delete(st.Rules, at)
		}
	case verb == "-X":
		delete(st.Rules, at)
	default:
		return fmt.Errorf("nothing this package writes")
	}
	return nil
}
