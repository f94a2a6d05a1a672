package dns

import (
	"net/netip"
	"slices"
	"strings"
)

// readTransfer reads who may have whole zones. Nobody is told of changes (NOTIFY),
// which the kubernetes plugin does not do either.
func (p *corefileParser) readTransfer(d directive) {
	if zones := canonicalAll(d.args); len(zones) > 0 && !slices.ContainsFunc(zones, func(z string) bool { return within(canonical(p.cfg.Domain), z) }) {
		p.ignored(d, "only the zones of the kubernetes block can be transferred")
		return
	}
	for _, o := range d.block {
		if o.name != "to" {
			p.ignored(o, "this option of transfer is not honoured")
			continue
		}
		for _, to := range o.args {
			p.readTransferTo(o, to)
		}
	}
}

func (p *corefileParser) readTransferTo(o directive, to string) {
	if to == "*" {
		p.cfg.TransferTo = append(p.cfg.TransferTo, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		return
	}
	if prefix, err := netip.ParsePrefix(to); err == nil {
		p.cfg.TransferTo = append(p.cfg.TransferTo, prefix)
		return
	}
	a, err := netip.ParseAddr(strings.Trim(to, "[]"))
	if err != nil {
		ap, portErr := netip.ParseAddrPort(to)
		if portErr != nil {
			p.invalid(o, "%q is not an address, a network or *", to)
			return
		}
		a = ap.Addr()
	}
	p.cfg.TransferTo = append(p.cfg.TransferTo, netip.PrefixFrom(a, a.BitLen()))
}
