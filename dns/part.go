package dns

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"fairway/model"
)

// part is everything one Service has in the zone. What takes work is packed when it is
// first asked for: most endpoint names never are.
type part struct {
	svc   *model.Service
	cfg   *Config
	hosts atomic.Pointer[hosts]
}

// node is one name of a Service. rel is the name below the Service's own, empty for
// that itself. A node without records is an empty non-terminal (RFC 8020).
type node struct {
	rel     string
	records []Record
}

// fqdn is the Service's own name.
func (p *part) fqdn() string {
	return p.svc.Name.Name + "." + p.svc.Name.Namespace + ".svc." + p.cfg.Domain
}

// find returns the node rel, nil when there is none. The nodes are worked out anew:
// what is asked often is packed, and keeping both would cost memory.
func (p *part) find(rel string) *node {
	known := p.nodes()
	i, ok := slices.BinarySearchFunc(known, rel, func(n node, rel string) int { return strings.Compare(n.rel, rel) })
	if !ok {
		return nil
	}
	return &known[i]
}

// nodes works the Service's names out, in order of rel.
func (p *part) nodes() []node {
	b := &nodeBuilder{part: p, fqdn: p.fqdn(), byName: map[string][]Record{}}
	switch {
	case p.svc.Type == model.ExternalName:
		b.externalName()
	case p.svc.Headless:
		b.headless()
	case p.served():
		b.clusterIP()
	}
	return b.sorted()
}

// served tells whether a Service with a cluster address has its names.
func (p *part) served() bool {
	if !p.svc.HasVIP() {
		return false
	}
	return !p.cfg.IgnoreEmpty || slices.ContainsFunc(p.svc.Endpoints, func(e *model.Endpoint) bool { return e.Ready })
}

// ready yields the endpoints that have names. Ready already covers Services that
// publish endpoints that are not (publishNotReadyAddresses).
func (p *part) ready() iter.Seq[*model.Endpoint] {
	return func(yield func(*model.Endpoint) bool) {
		if p.svc.Type == model.ExternalName || !p.svc.Headless && !p.served() {
			return
		}
		for _, e := range p.svc.Endpoints {
			if e.Ready && !yield(e) {
				return
			}
		}
	}
}

// addresses yields each address that has a PTR record to this Service, once.
func (p *part) addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if p.served() {
			for _, a := range p.svc.ClusterIPs {
				if !yield(a) {
					return
				}
			}
		}
		var last netip.Addr
		for e := range p.ready() { // in address order
			if e.Addr == last {
				continue
			}
			if last = e.Addr; !yield(last) {
				return
			}
		}
	}
}

// pointers are the targets of a's PTR records in this Service.
func (p *part) pointers(a netip.Addr) []string {
	var out []string
	if p.served() && slices.Contains(p.svc.ClusterIPs, a) {
		out = append(out, p.fqdn())
	}
	for e := range p.ready() {
		if e.Addr != a {
			continue
		}
		if t := p.endpointName(e) + "." + p.fqdn(); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// endpointName is the label of one endpoint.
func (p *part) endpointName(e *model.Endpoint) string {
	if name := p.givenName(e); name != "" {
		return lower(name)
	}
	return dashed(e.Addr)
}

// givenName is the endpoint's hostname, else its Pod's name when that is asked for. What
// is no host's label (RFC 1123) is not used, since a Pod's name may have dots; without
// a name the address with dashes stands for it.
func (p *part) givenName(e *model.Endpoint) string {
	if isHost(e.Hostname) {
		return e.Hostname
	}
	if p.cfg.EndpointPodNames && isHost(e.Pod.Name) {
		return e.Pod.Name
	}
	return ""
}

// isHost tells whether s can be the label of a host.
func isHost(s string) bool { return fitsLabel(s) && s[0] != '_' }

// dashed is an address as a label, with dashes for its dots or colons.
func dashed(a netip.Addr) string {
	if a.Is4() {
		return strings.ReplaceAll(a.String(), ".", "-")
	}
	label := strings.ReplaceAll(a.String(), ":", "-")
	if strings.HasSuffix(label, "-") {
		label += "0" // a label must not end in a dash (RFC 1123)
	}
	return label
}

// target is where an ExternalName points, empty when it is not served.
func (p *part) target() string {
	t := p.svc.ExternalName
	if t == "" {
		return ""
	}
	if p.cfg.CompleteSvc && dangling(t) {
		t += "." + p.cfg.Domain
	}
	return canonical(t)
}

// dangling tells whether name was meant to be completed with the cluster domain.
func dangling(name string) bool { return strings.HasSuffix(name, ".svc") }

type nodeBuilder struct {
	part   *part
	fqdn   string
	byName map[string][]Record
}

func (b *nodeBuilder) add(rel string, r Record) {
	r.TTL = b.part.cfg.TTL
	if list := b.byName[rel]; len(list) > 0 {
		r.Name = list[0].Name
	} else if r.Name = b.fqdn; rel != "" {
		r.Name = rel + "." + b.fqdn
	}
	b.byName[rel] = append(b.byName[rel], r)
}

func (b *nodeBuilder) address(rel string, a netip.Addr) {
	b.add(rel, Record{Type: addressType(a), Addr: a})
}

func (b *nodeBuilder) externalName() {
	if t := b.part.target(); t != "" && t != b.fqdn {
		b.add("", Record{Type: TypeCNAME, Target: t})
	}
}

func (b *nodeBuilder) clusterIP() {
	svc := b.part.svc
	for _, a := range svc.ClusterIPs {
		b.address("", a)
	}
	ofAny := weightOf(len(svc.ClusterIPs) * len(svc.Ports))
	for _, port := range svc.Ports {
		srv := Record{Type: TypeSRV, Target: b.fqdn, Port: port.Port, Weight: ofAny}
		b.add("", srv)
		if port.Name != "" {
			srv.Weight = weightOf(len(svc.ClusterIPs))
			b.add(serviceLabel(port.Name, string(port.Protocol)), srv)
		}
	}
	b.endpoints(nil)
}

// headless gives the Service its ready endpoints. Without any it has no name at all,
// so that a client does not take silence for an empty set (specification 1.1.0, 2.4).
func (b *nodeBuilder) headless() {
	b.endpoints(func(e *model.Endpoint) { b.address("", e.Addr) })
	count := map[string]int{} // how often a port name is offered, "" for any port
	for e := range b.part.ready() {
		for _, port := range e.Ports {
			count[""]++
			if port.Name != "" {
				count[serviceLabel(port.Name, string(port.Protocol))]++
			}
		}
	}
	seen := map[offer]bool{}
	for e := range b.part.ready() {
		target := b.part.endpointName(e) + "." + b.fqdn
		for _, port := range e.Ports {
			srv := Record{Type: TypeSRV, Target: target, Port: port.Port}
			b.service("", srv, count, seen)
			if port.Name != "" {
				b.service(serviceLabel(port.Name, string(port.Protocol)), srv, count, seen)
			}
		}
	}
}

// offer is what makes an SRV record of one name different from another.
type offer struct {
	rel, target string
	port        uint16
}

func (b *nodeBuilder) service(rel string, srv Record, count map[string]int, seen map[offer]bool) {
	key := offer{rel, srv.Target, srv.Port}
	if seen[key] {
		return // endpoints that share a hostname share the record
	}
	seen[key] = true
	srv.Weight = weightOf(count[rel])
	b.add(rel, srv)
}

// endpoints gives each ready endpoint its own name, and calls also (may be nil) once
// per address.
func (b *nodeBuilder) endpoints(also func(*model.Endpoint)) {
	type key struct {
		rel  string
		addr netip.Addr
	}
	seen := map[key]bool{}
	var last netip.Addr
	for e := range b.part.ready() {
		if e.Addr != last && also != nil {
			also(e)
		}
		last = e.Addr
		k := key{b.part.endpointName(e), e.Addr}
		if !seen[k] {
			seen[k] = true
			b.address(k.rel, e.Addr)
		}
	}
}

// sorted adds the empty non-terminals and puts the names in order.
func (b *nodeBuilder) sorted() []node {
	for rel := range b.byName {
		for up := parent(rel); up != ""; up = parent(up) {
			if _, ok := b.byName[up]; !ok {
				b.byName[up] = nil
			}
		}
	}
	out := make([]node, 0, len(b.byName))
	for rel, records := range b.byName {
		out = append(out, node{rel, records})
	}
	slices.SortFunc(out, func(a, b node) int { return strings.Compare(a.rel, b.rel) })
	return out
}

// parent is the name above rel, empty at the Service's own.
func parent(rel string) string {
	_, up, _ := strings.Cut(rel, ".")
	return up
}

// serviceLabel is the owner of an SRV record relative to the Service (RFC 2782).
func serviceLabel(port, proto string) string { return "_" + lower(port) + "._" + proto }

// weightOf shares 100 among n, at least 1 each.
func weightOf(n int) uint16 {
	if n == 0 {
		return 1
	}
	return uint16(max(100/n, 1))
}
