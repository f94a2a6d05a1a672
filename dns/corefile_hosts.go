package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// readHosts reads hosts [FILE [ZONES…]] {options and lines of hosts(5)}.
func (p *corefileParser) readHosts(d directive, zones []string) {
	h := HostsConfig{File: "/etc/hosts", Zones: zones, Blocks: zones, TTL: 3600}
	if len(d.args) > 0 {
		h.File = d.args[0]
	} else if slices.ContainsFunc(d.block, inlineHost) {
		h.File = ""
	}
	if len(d.args) > 1 {
		h.Zones = canonicalAll(d.args[1:])
	}
	if slices.Contains(h.Zones, ".") {
		h.Zones = nil
	}
	for _, o := range d.block {
		p.hostsOption(o, &h)
	}
	p.forward.Hosts = append(p.forward.Hosts, h)
}

func inlineHost(o directive) bool {
	_, err := netip.ParseAddr(o.name)
	return err == nil
}

func (p *corefileParser) hostsOption(o directive, h *HostsConfig) {
	switch {
	case inlineHost(o):
		if len(o.args) == 0 {
			p.invalid(o, "an address without a name")
			return
		}
		for _, name := range o.args {
			if within(canonical(name), canonical(p.cfg.Domain)) {
				p.ignored(directive{name: o.name, args: []string{name}, line: o.line}, "names of the cluster domain are the cluster's")
			}
		}
		h.Inline = append(h.Inline, strings.Join(append([]string{o.name}, o.args...), " "))
	case o.name == "fallthrough":
		h.Fallthrough = []string{"."}
		if len(o.args) > 0 {
			h.Fallthrough = canonicalAll(o.args)
		}
	case o.name == "no_reverse":
		h.NoReverse = true
	case o.name == "ttl":
		n, err := strconv.ParseUint(arg(o, 0), 10, 31)
		if err != nil || n == 0 {
			p.invalid(o, "%q is not a number of seconds", arg(o, 0))
			return
		}
		h.TTL = uint32(n)
	case o.name == "reload":
		// A changed file is read within seconds whatever this says.
	default:
		p.ignored(o, "this option of hosts is not honoured")
	}
}
