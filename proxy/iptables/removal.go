package iptables

import (
	"net/netip"
	"slices"
	"strings"
)

// Removal is the input of iptables-restore that deletes every chain and jump this
// package ever makes from a listing, empty when there is none. While the kubelet's
// canary stands, KUBE-FIREWALL is the kubelet's too and stays.
func (p *Program) Removal(v6 bool) string {
	tables := p.family(v6).tables()
	have := index(tables)
	_, kubelet := have[place{Mangle, KubeletCanary}]
	in := input{}
	for _, t := range tables {
		if !slices.Contains([]string{Filter, Nat, Mangle}, t.Name) {
			continue
		}
		s := in.section(t.Name)
		for _, c := range t.Chains {
			if t.ours(c.Name, kubelet) {
				s.chains = appendDeclaration(s.chains, c.Name)
				s.deletions = append(append(append(s.deletions, "-X "...), c.Name...), '\n')
				continue
			}
			for _, r := range c.Rules {
				if target := r.chain(); t.ours(target, kubelet) {
					s.rules = append(append(append(s.rules, "-D "...), c.Name...), ' ')
					s.rules = append(r.append(s.rules), '\n')
				}
			}
		}
	}
	return in.text()
}

// chain is where a rule jumps to, empty for other targets.
func (r Rule) chain() string {
	if r.Raw == "" {
		return r.Target.Chain
	}
	words := strings.Fields(r.Raw)
	if i := slices.IndexFunc(words, func(w string) bool { return w == "-j" || w == "-g" }); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

func (t Table) ours(chain string, kubelet bool) bool {
	var names []string
	switch t.Name {
	case Filter:
		names = []string{kubeServices, kubeExternal, kubeNodePorts, kubeForward, kubeProxyFW, Canary, probeChain}
		if !kubelet {
			names = append(names, kubeletFW)
		}
	case Nat:
		if ownChain(chain) {
			return true
		}
		names = []string{kubeServices, kubeNodePorts, kubePostrouting, kubeMarkMasq, Canary}
	case Mangle:
		names = []string{Canary}
	}
	return slices.Contains(names, chain)
}

// Probe is an input of iptables-restore that works only when the kernel has Module.
// Without an Optional one most Services work.
type Probe struct {
	Module, Use, Input string
	Optional           bool
}

// Probes lists one for each match and target beyond the plainest. All of them together,
// one after the other, are one input too. They leave nothing behind.
func Probes(v6 bool) []Probe {
	lo := netip.AddrPortFrom(loopback(v6).Addr().Next(), 80)
	rules := []struct {
		module, use string
		rule        Rule
	}{
		{"xt_comment", "every rule", Rule{Comment: "probe"}},
		{"xt_conntrack", "telling new flows", Rule{State: State{Bits: New}}},
		{"xt_addrtype", "NodePorts", Rule{DstLocal: true}},
		{"xt_mark", "masquerade", Rule{Mark: Mark{Bits: 1}, Target: Target{Verb: OrMark, Bits: 1}}},
		{"xt_statistic", "choosing among endpoints", Rule{OneIn: 2}},
		{"xt_recent", "ClientIP affinity", Rule{Recent: Recent{Name: probeChain}}},
		{"xt_MASQUERADE with --random-fully", "masquerade", Rule{Target: Target{Verb: Masquerade}}},
		{"xt_nat", "reaching endpoints", Rule{Proto: "tcp", Target: Target{Verb: DNAT, To: lo}}},
	}
	var out []Probe
	for _, r := range rules {
		out = append(out, Probe{Module: r.module, Use: r.use, Input: probe(Nat, r.rule), Optional: r.rule.Recent.Name != ""})
	}
	return append(out, Probe{Module: "REJECT", Use: "Services without endpoints", Input: probe(Filter, Rule{Target: Target{Verb: Reject}})})
}

// CounterProbe is an input that works only when rules can count with nfacct objects.
func CounterProbe() string { return probe(Filter, Rule{Counter: CounterInvalid}) }

// Counting tells whether rules of a listing count with nfacct objects.
func (p *Program) Counting(v6 bool) bool {
	for _, t := range p.family(v6).tables() {
		for _, c := range t.Chains {
			if c.Name == kubeForward && slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Counter == CounterInvalid }) {
				return true
			}
		}
	}
	return false
}

func probe(table string, r Rule) string {
	in := input{}
	in.write(placed{table, Chain{Name: probeChain, Rules: []Rule{r}}})
	s := in.section(table)
	s.deletions = append(s.deletions, "-F "+probeChain+"\n-X "+probeChain+"\n"...)
	return in.text()
}
