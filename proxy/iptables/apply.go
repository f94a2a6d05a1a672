package iptables

import (
	"fmt"
	"slices"
	"strings"
)

// Apply is what `iptables-restore --noflush` makes of a family's listing: all of input
// or, with an error, none of it. It knows the lines this package writes and the
// kernel's conditions: chains jumped to exist, deleted chains are empty and unused.
func (p *Program) Apply(input string, v6 bool) (*Program, error) {
	out := &Program{}
	f := out.family(v6)
	f.set.v6 = v6
	for _, t := range p.family(v6).tables() {
		f.listed = append(f.listed, Table{t.Name, slices.Clone(t.Chains)})
	}
	var t *Table
	for n, line := range strings.Split(input, "\n") {
		switch {
		case line == "":
			continue
		case line[0] == '*':
			t = f.table(line[1:])
		case t == nil:
			return nil, fmt.Errorf("line %d failed: no table yet", n+1)
		case line == "COMMIT":
			if err := t.check(); err != nil {
				return nil, fmt.Errorf("line %d failed: %w", n+1, err)
			}
		default:
			if err := t.apply(line); err != nil {
				return nil, fmt.Errorf("line %d failed: %w", n+1, err)
			}
		}
	}
	return out, nil
}

func (f *family) table(name string) *Table {
	i := slices.IndexFunc(f.listed, func(t Table) bool { return t.Name == name })
	if i < 0 {
		i = len(f.listed)
		f.listed = append(f.listed, Table{Name: name})
	}
	return &f.listed[i]
}

func (t *Table) find(name string) int {
	return slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name })
}

func (t *Table) apply(line string) error {
	if line[0] == ':' {
		name, _, _ := strings.Cut(line[1:], " ")
		if len(name) > 28 {
			return fmt.Errorf("chain name %s is longer than 28 characters", name)
		}
		if i := t.find(name); i >= 0 {
			t.Chains[i].Rules = nil
		} else {
			t.Chains = append(t.Chains, Chain{Name: name})
		}
		return nil
	}
	verb, rest, _ := strings.Cut(line, " ")
	name, text, _ := strings.Cut(rest, " ")
	i := t.find(name)
	if i < 0 {
		if !builtin(name) {
			return fmt.Errorf("no chain %s", name)
		}
		i = len(t.Chains)
		t.Chains = append(t.Chains, Chain{Name: name})
	}
	c := &t.Chains[i]
	switch verb {
	case "-A":
		c.Rules = append(slices.Clip(c.Rules), ParseRule(text))
	case "-I":
		c.Rules = append([]Rule{ParseRule(text)}, c.Rules...)
	case "-D":
		k := slices.Index(c.Rules, ParseRule(text))
		if k < 0 {
			return fmt.Errorf("no such rule in chain %s", name)
		}
		c.Rules = slices.Delete(slices.Clone(c.Rules), k, k+1)
	case "-F":
		c.Rules = nil
	case "-X":
		if len(c.Rules) > 0 {
			return fmt.Errorf("chain %s is not empty", name)
		}
		t.Chains = slices.Delete(t.Chains, i, i+1)
	default:
		return fmt.Errorf("%q is nothing this package writes", line)
	}
	return nil
}

func (t *Table) check() error {
	have := make(map[string]bool, len(t.Chains))
	for _, c := range t.Chains {
		have[c.Name] = true
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			// Of a raw rule only our chains are told from targets that are none.
			jumps := r.Target.Verb == Jump || strings.HasPrefix(r.chain(), "KUBE-")
			if to := r.chain(); jumps && !have[to] {
				return fmt.Errorf("rule in chain %s jumps to %s, which is not there", c.Name, to)
			}
		}
	}
	return nil
}
