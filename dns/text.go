package dns

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Text prints every record as a line of a zone file: the apex, then the names of each
// Service with the PTR records that lead to it, then pods.
func (z *Zone) Text() string {
	var b strings.Builder
	for line := range z.apexLines() {
		b.WriteString(line + "\n")
	}
	for _, p := range z.parts {
		for _, line := range p.lines() {
			b.WriteString(line + "\n")
		}
	}
	for _, line := range z.podLines() {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (z *Zone) apexLines() iter.Seq[string] {
	return func(yield func(string) bool) {
		records := slices.Clone(z.soa)
		records = append(records, z.nameServers()...)
		records = append(records, z.nameServerAddresses("ns.dns."+z.cfg.Domain)...)
		records = append(records, z.find("dns-version."+z.cfg.Domain, &z.soa[0]).records...)
		for _, r := range records {
			if !yield(r.String()) {
				return
			}
		}
	}
}

// lines are the records of one Service, worked out afresh: printing must not keep in
// memory what nobody asks for.
func (p *part) lines() []string {
	var out []string
	for _, n := range p.nodes() {
		for _, r := range n.records {
			out = append(out, r.String())
		}
	}
	for a := range p.addresses() {
		for _, t := range p.pointers(a) {
			out = append(out, Record{Name: reverseName(a), Type: TypePTR, TTL: p.cfg.TTL, Target: t}.String())
		}
	}
	return out
}

func (z *Zone) podLines() []string {
	if z.cfg.Pods == PodsInsecure {
		return []string{"; <a-b-c-d>.<namespace>.pod." + z.cfg.Domain + " is answered from the name alone"}
	}
	var out []string
	for _, p := range z.pods {
		for _, a := range p.IPs {
			if z.hasNamespace(p.Name.Namespace) {
				name := fmt.Sprintf("%s.%s.pod.%s", dashed(a), p.Name.Namespace, z.cfg.Domain)
				out = append(out, Record{Name: name, Type: addressType(a), TTL: z.cfg.TTL, Addr: a}.String())
			}
		}
	}
	return out
}
