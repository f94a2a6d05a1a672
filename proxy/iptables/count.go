package iptables

import (
	"strconv"
	"strings"

	"fairway/proxy"
)

// Counts reads a listing with counters (iptables-save -c -t nat): the flows of each
// ServicePort are the packets that went from its chain to an endpoint's, for the nat table
// sees a flow's first packet alone. Rules that are written anew count from zero.
func (p *Program) Counts(save string, v6 bool) []proxy.Count {
	flows := map[string]uint64{}
	for line := range strings.SplitSeq(save, "\n") {
		if hash, n, ok := countedJump(line); ok {
			flows[hash] += n
		}
	}
	var out []proxy.Count
	for _, one := range p.family(v6).parts {
		if n, ok := flows[one.hash]; ok {
			out = append(out, proxy.Count{Key: one.port.Key, Connections: n})
		}
	}
	return out
}

// countedJump reads a line such as
//
//	[3:180] -A KUBE-SVC-ABCDEFGHIJKLMNOP -m … -j KUBE-SEP-…
func countedJump(line string) (hash string, packets uint64, ok bool) {
	counters, rule, ok := strings.Cut(line, "] -A KUBE-SV")
	if !ok || len(rule) < 2 || rule[0] != 'C' && rule[0] != 'L' || !strings.Contains(rule, " -j KUBE-SEP-") {
		return "", 0, false
	}
	hash, _, _ = strings.Cut(strings.TrimPrefix(rule[1:], "-"), " ")
	text, _, _ := strings.Cut(strings.TrimPrefix(counters, "["), ":")
	packets, err := strconv.ParseUint(text, 10, 64)
	return hash, packets, err == nil
}

// RuleCounts is the number of rules in the program's own chains, by table.
func (p *Program) RuleCounts(v6 bool) map[string]int {
	out := map[string]int{}
	for _, t := range p.family(v6).tables() {
		for _, c := range t.Chains {
			if !builtin(c.Name) {
				out[t.Name] += len(c.Rules)
			}
		}
	}
	return out
}

// Written is the number of rules in an input of iptables-restore, by table.
func Written(input string) map[string]int {
	out := map[string]int{}
	table := ""
	for line := range strings.SplitSeq(input, "\n") {
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, "-A "):
			out[table]++
		}
	}
	return out
}
