package dns

import (
	"encoding/binary"
	"slices"
	"strings"
)

// hosts is what a Service has beside a cluster address, packed once when it is first
// asked for: its endpoints' names and, when it is headless, its own addresses and
// ports. A Service with a cluster address that nobody asks by an endpoint's name needs
// none, which keeps 100,000 of them small.
type hosts struct {
	odd     bool   // has a name that cannot be packed; left to the plain answer
	a, aaaa string // the Service's own addresses, as records owned by the question
	names   []host // in order of label
	ports   []portSet
}

// host is one endpoint's name with its address records, owned by the question.
type host struct{ label, a, aaaa string }

// portSet are the SRV records of one name: rel is empty for the Service's own.
type portSet struct {
	rel string // as the wire has it, in lower case
	srv []srv
}

// srv is an SRV record whose target is the Service's own name below hosts.names[host],
// which every endpoint has.
type srv struct {
	weight, port uint16
	host         int32
	glue         bool // the first of its host in the set: it brings the addresses
}

// packed returns the Service's hosts.
func (p *part) packed() *hosts {
	if h := p.hosts.Load(); h != nil {
		return h
	}
	h := p.packHosts()
	p.hosts.Store(h) // another query may have done the same meanwhile: no matter
	return h
}

func (p *part) packHosts() *hosts {
	h, nodes := &hosts{}, p.nodes()
	headless := p.svc.Headless
	for _, n := range nodes {
		a, aaaa := packAddresses(n.records)
		switch {
		case n.rel == "" && headless:
			h.a, h.aaaa = a, aaaa
		case n.rel == "" || n.rel[0] == '_':
		case fitsLabel(n.rel):
			h.names = append(h.names, host{n.rel, a, aaaa})
		default:
			h.odd = true
		}
	}
	slices.SortFunc(h.names, func(a, b host) int { return strings.Compare(a.label, b.label) })
	if !headless || h.odd {
		return h
	}
	fqdn := p.fqdn()
	for _, n := range nodes {
		if n.rel == "" || n.rel[0] == '_' {
			h.addPorts(n, fqdn)
		}
	}
	return h
}

func (h *hosts) addPorts(n node, fqdn string) {
	set, seen := portSet{}, map[int]bool{}
	if n.rel != "" {
		w, ok := newWireName(n.rel + ".")
		if !ok {
			h.odd = true
			return
		}
		set.rel = w.wire[:len(w.wire)-1]
	}
	for _, r := range n.records {
		if r.Type != TypeSRV {
			continue
		}
		i, ok := h.find(strings.TrimSuffix(r.Target, "."+fqdn))
		if !ok {
			h.odd = true
			return
		}
		set.srv = append(set.srv, srv{weight: r.Weight, port: r.Port, host: int32(i), glue: !seen[i]})
		seen[i] = true
	}
	h.ports = append(h.ports, set)
}

func (h *hosts) find(label string) (int, bool) {
	return slices.BinarySearchFunc(h.names, label, func(n host, label string) int { return strings.Compare(n.label, label) })
}

func (h *hosts) label(r srv) string { return h.names[r.host].label }

// portSet finds the set of rel, nil when there is none.
func (h *hosts) portSet(rel string) *portSet {
	for i := range h.ports {
		if h.ports[i].rel == rel {
			return &h.ports[i]
		}
	}
	return nil
}

// packAddresses makes records owned by the question, A and AAAA apart.
func packAddresses(records []Record) (a, aaaa string) {
	var a4, a6 []byte
	for _, r := range records {
		head := func(b []byte, length byte) []byte {
			b = append(b, pointer>>8, headerLen, byte(r.Type>>8), byte(r.Type), 0, 1)
			b = binary.BigEndian.AppendUint32(b, r.TTL)
			return append(b, 0, length)
		}
		switch r.Type {
		case TypeA:
			b := r.Addr.As4()
			a4 = append(head(a4, 4), b[:]...)
		case TypeAAAA:
			b := r.Addr.As16()
			a6 = append(head(a6, 16), b[:]...)
		}
	}
	return string(a4), string(a6)
}
