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
		for _, r := range append(slices.Clone(z.soa), z.apexRecords()...) {
			if !yield(r.String()) {
				return
			}
		}
	}
}

// apexRecords are the zone's own, but for SOA.
func (z *Zone) apexRecords() []Record {
	records := z.nameServers()
	records = append(records, z.nameServerAddresses("ns.dns."+z.cfg.Domain)...)
	return append(records, z.find("dns-version."+z.cfg.Domain, &z.soa[0]).records...)
}

func (p *part) lines() []string {
	var out []string
	for _, r := range p.records() {
		out = append(out, r.String())
	}
	return out
}

// records are those of one Service, worked out afresh: printing must not keep in
// memory what nobody asks for.
func (p *part) records() []Record {
	var out []Record
	for _, n := range p.nodes() {
		out = append(out, n.records...)
	}
	for a := range p.addresses() {
		for _, t := range p.pointers(a) {
			out = append(out, Record{Name: reverseName(a), Type: TypePTR, TTL: p.cfg.TTL, Target: t})
		}
	}
	return out
}

func (z *Zone) podLines() []string {
	if z.cfg.Pods == PodsInsecure {
		return []string{"; <a-b-c-d>.<namespace>.pod." + z.cfg.Domain + " is answered from the name alone"}
	}
	var out []string
	for _, r := range z.podRecords() {
		out = append(out, r.String())
	}
	return out
}

// podRecords are those of Pods that are known, which they are only where verified.
func (z *Zone) podRecords() []Record {
	var out []Record
	for _, p := range z.pods {
		for _, a := range p.IPs {
			if z.hasNamespace(p.Name.Namespace) {
				name := fmt.Sprintf("%s.%s.pod.%s", dashed(a), p.Name.Namespace, z.cfg.Domain)
				out = append(out, Record{Name: name, Type: addressType(a), TTL: z.cfg.TTL, Addr: a})
			}
		}
	}
	return out
}
