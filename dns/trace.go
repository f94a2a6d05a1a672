package dns

import (
	"fmt"
	"slices"
	"strings"

	"fairway/packet"
)

// NDots is what kubelet writes into a Pod's resolv.conf: a name with fewer dots is
// tried with the search list first.
const NDots = 5

// Search is the search list kubelet writes for a Pod of the namespace under the DNS
// policy ClusterFirst, followed by the host's own.
func (z *Zone) Search(namespace string, host ...string) []string {
	list := []string{namespace + ".svc." + z.cfg.Domain, "svc." + z.cfg.Domain, z.cfg.Domain}
	for _, h := range host {
		list = append(list, canonical(h))
	}
	return list
}

// Walk is how a resolver finds a name.
type Walk struct {
	Tries []Try
	// Found is the absolute name that has an address, empty when none has or when
	// only the upstream can tell.
	Found string
	// Upstream are the names that had to be asked upstream, in order.
	Upstream []string
}

// Try is one absolute name the resolver asks for, in both families. What it holds is
// explained in the replies' Steps.
type Try struct {
	Name    string
	A, AAAA Reply
}

// Trace walks the search list as a Pod's resolver does (resolv.conf(5), options
// ndots:n): each name it asks for until one has an address. A name that must be asked
// upstream does not end the walk, since from here nobody can say what comes back.
func (z *Zone) Trace(name string, search []string, ndots int) Walk {
	var w Walk
	for _, n := range candidates(name, search, ndots) {
		t := Try{Name: n, A: z.Explain(Question{n, TypeA}), AAAA: z.Explain(Question{n, TypeAAAA})}
		w.Tries = append(w.Tries, t)
		if t.A.NotOurs {
			w.Upstream = append(w.Upstream, n)
			continue
		}
		if c := t.A.Chase; c != "" {
			w.Found, w.Upstream = n, append(w.Upstream, c)
			return w
		}
		if t.A.hasAddress() || t.AAAA.hasAddress() {
			w.Found = n
			return w
		}
	}
	return w
}

// candidates are the names tried, in order.
func candidates(name string, search []string, ndots int) []string {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	var list []string
	for _, s := range search {
		list = append(list, strings.TrimSuffix(name+"."+s, ".")+".")
	}
	if strings.Count(name, ".") >= ndots {
		return append([]string{name + "."}, list...)
	}
	return append(list, name+".")
}

func (r Reply) hasAddress() bool {
	return slices.ContainsFunc(r.Answer, func(rec Record) bool { return rec.Type == TypeA || rec.Type == TypeAAAA })
}

// Steps tells the walk in lines: what the query met, then the records or what is
// missing. Only AAAA records are told of a name that has no A.
func (w Walk) Steps() []packet.Step {
	var out []packet.Step
	for _, t := range w.Tries {
		a, b := t.A, t.AAAA
		switch {
		case a.NotOurs:
			out = append(out, a.Steps...)
		case !a.hasAddress() && b.hasAddress():
			out = append(append(out, packet.Step{Where: t.Name + " AAAA", What: outcome(b)}), b.Steps...)
		case a.hasAddress() && b.hasAddress():
			out = append(append(out, packet.Step{Where: t.Name + " A, AAAA", What: outcome(a)}), a.Steps...)
			out = append(out, b.Steps...)
		case len(a.Answer) == 0 && len(a.Steps) == 1:
			out = append(out, packet.Step{Where: t.Name + " A", What: outcome(a) + ": " + a.Steps[0].What})
		default:
			out = append(append(out, packet.Step{Where: t.Name + " A", What: outcome(a)}), a.Steps...)
		}
	}
	return out
}

// outcome is the response code, with NODATA for an empty NOERROR.
func outcome(r Reply) string {
	if r.Rcode == NoError && len(r.Answer) == 0 {
		return "NODATA"
	}
	return r.Rcode.String()
}

// Explain is Answer with its Steps: the object behind each record, or what is missing.
func (z *Zone) Explain(q Question) Reply {
	r := z.Answer(q)
	name := canonical(q.Name)
	if r.NotOurs {
		r.Steps = []packet.Step{{Where: name, What: z.whyNotOurs(name)}}
		return r
	}
	for _, rec := range r.Answer {
		r.Steps = append(r.Steps, packet.Step{Where: rec.String(), What: z.source(rec)})
	}
	if len(r.Answer) > 0 && len(r.Authority) > 0 { // a chain that leads nowhere
		name = canonical(r.Answer[len(r.Answer)-1].Target)
	}
	switch {
	case r.Chase != "":
		r.Steps = append(r.Steps, packet.Step{Where: r.Chase, What: "not in " + trimDot(z.cfg.Domain) + ", asked upstream"})
	case r.Rcode == NXDomain || len(r.Authority) > 0:
		r.Steps = append(r.Steps, packet.Step{Where: name, What: z.missing(name, q.Type)})
	}
	return r
}

func (z *Zone) whyNotOurs(name string) string {
	if soa := z.zoneOf(name); soa != nil {
		return fmt.Sprintf("no such name in %s, which falls through to the upstream", trimDot(soa.Name))
	}
	return "in none of the zones served here, asked upstream"
}

// source names the object a record comes from.
func (z *Zone) source(r Record) string {
	name := canonical(r.Name)
	soa := z.zoneOf(name)
	if soa == nil {
		return "the zone"
	}
	f := z.find(name, soa)
	switch {
	case r.Type == TypePTR:
		a, _ := reversed(name)
		return "address " + a.String() + " of " + z.targetSource(r.Target)
	case f.part != nil:
		return f.part.source(r)
	case within(name, "pod."+z.cfg.Domain):
		return z.podSource(name)
	}
	return "the zone"
}

func (z *Zone) targetSource(target string) string {
	target = canonical(target)
	if f := z.find(target, &z.soa[0]); f.part != nil {
		return f.part.svc.Ref().String()
	}
	return target
}

func (z *Zone) podSource(name string) string {
	label, namespace := cutLast(strings.TrimSuffix(name, ".pod."+z.cfg.Domain))
	if a, ok := podAddress(label); ok {
		if n, ok := z.podAt(namespace, a); ok {
			return "Pod " + n.String()
		}
	}
	return "the name alone (pods insecure)"
}

// source names the part of the Service that r comes from.
func (p *part) source(r Record) string {
	ref := p.svc.Ref().String()
	switch {
	case r.Type == TypeCNAME:
		return ref + ": externalName"
	case r.Type == TypeSRV:
		return fmt.Sprintf("%s: port %d", ref, r.Port)
	case slices.Contains(p.svc.ClusterIPs, r.Addr):
		return ref + ": clusterIP"
	}
	for e := range p.ready() {
		if e.Addr != r.Addr {
			continue
		}
		if e.Pod.Name != "" {
			return ref + ": endpoint, Pod " + e.Pod.String()
		}
		return ref + ": endpoint"
	}
	return ref
}
