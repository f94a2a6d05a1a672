package dns

import (
	"net/netip"
	"slices"
	"strings"
)

// HostsConfig is a file of names as hosts(5) has them, asked after the zones here and
// before any upstream.
type HostsConfig struct {
	File  string   // read again when it changes; empty for none
	Zones []string // canonical names within which it is asked; none are all
	// Blocks are the zones of the server block it is in, canonical: names that a route of a
	// more specific block holds are not its. None are all.
	Blocks []string
	// Inline are lines of the configuration itself, which come first.
	Inline []string
	TTL    uint32 // seconds
	// Fallthrough are the canonical names within which what is not listed is asked
	// upstream; elsewhere it fails (SERVFAIL, as CoreDNS has it).
	Fallthrough []string
	NoReverse   bool // no PTR records
}

// Hosts answers from a HostsConfig and its file.
type Hosts struct {
	cfg   HostsConfig
	names map[string][]netip.Addr // by canonical name
	addrs map[netip.Addr][]string
}

// NewHosts reads the inline lines and the file's text. What is no address and name is
// passed over, as resolvers do.
func NewHosts(cfg HostsConfig, file string) *Hosts {
	h := &Hosts{cfg: cfg, names: map[string][]netip.Addr{}, addrs: map[netip.Addr][]string{}}
	for _, line := range slices.Concat(cfg.Inline, strings.Split(file, "\n")) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			continue
		}
		a = a.Unmap().WithZone("")
		for _, name := range f[1:] {
			h.add(canonical(name), a)
		}
	}
	return h
}

func (h *Hosts) add(name string, a netip.Addr) {
	if !validName(name) {
		return
	}
	if list := h.names[name]; len(list) < mostOfOne && !slices.Contains(list, a) {
		h.names[name] = append(list, a)
	}
	if list := h.addrs[a]; len(list) < mostOfOne && !slices.Contains(list, name) {
		h.addrs[a] = append(list, name)
	}
}

// mostOfOne are the addresses of one name, and the names of one address, that are
// answered with: lists of names to block give hundreds of thousands to one address.
const mostOfOne = 128

// validName tells whether canonical name fits into a message (RFC 1035 section 3.1).
func validName(name string) bool {
	if len(name) > 254 || name == "." || strings.Contains(name, `\`) {
		return false
	}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

// Asked tells whether names of a server block, whose zone is canonical, are this file's
// to answer: those of its own block or a less specific one. Empty is no block.
func (h *Hosts) Asked(name, block string) bool {
	if len(h.cfg.Blocks) == 0 {
		return true
	}
	mine := longest(h.cfg.Blocks, canonical(name))
	return mine != "" && len(mine) >= len(block)
}

// Answer is what is listed. Its NotOurs says that the question goes on to the forwarder.
func (h *Hosts) Answer(q Question) Reply {
	name := canonical(q.Name)
	in := func(zone string) bool { return within(name, zone) }
	if len(h.cfg.Zones) > 0 && !slices.ContainsFunc(h.cfg.Zones, in) {
		return Reply{NotOurs: true}
	}
	addrs, listed := h.names[name]
	var r Reply
	for _, a := range addrs {
		if addressType(a) == q.Type {
			r.Answer = append(r.Answer, Record{Name: q.Name, Type: q.Type, TTL: h.cfg.TTL, Addr: a})
		}
	}
	if a, ok := reversed(name); ok && q.Type == TypePTR && !h.cfg.NoReverse {
		for _, target := range h.addrs[a] {
			r.Answer = append(r.Answer, Record{Name: q.Name, Type: TypePTR, TTL: h.cfg.TTL, Target: target})
		}
	}
	switch {
	case listed || len(r.Answer) > 0:
		return r
	case slices.ContainsFunc(h.cfg.Fallthrough, in):
		return Reply{NotOurs: true}
	}
	return Reply{Rcode: ServFail}
}
