package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readForward reads forward FROM TO… {options}; FROM narrows the server block's zones.
func (p *corefileParser) readForward(d directive, zones []string) []Route {
	if len(d.args) < 2 {
		p.invalid(d, "wants the zone and at least one upstream, as in: forward . /etc/resolv.conf")
		return nil
	}
	r := newRoute(canonical(d.args[0]))
	for _, to := range d.args[1:] {
		if u, ok := p.upstream(d, to); ok {
			r.Upstreams = append(r.Upstreams, u)
		}
	}
	for _, o := range d.block {
		p.forwardOption(o, &r)
	}
	if r.Zone != "." {
		r.Block = longest(zones, r.Zone)
		return []Route{r}
	}
	var out []Route
	for _, z := range zones {
		r.Zone, r.Block = z, z
		out = append(out, r)
	}
	return out
}

// longest is the longest zone that holds canonical name, empty when none does.
func longest(zones []string, name string) string {
	best := ""
	for _, z := range zones {
		if len(z) > len(best) && within(name, z) {
			best = z
		}
	}
	return best
}

// upstream checks one TO: an address with or without port, or a resolv.conf.
func (p *corefileParser) upstream(d directive, to string) (string, bool) {
	if rest, ok := strings.CutPrefix(to, "dns://"); ok {
		to = rest
	}
	if strings.HasPrefix(to, "/") {
		return to, true
	}
	if _, err := ParseUpstream(to); err != nil {
		p.ignored(directive{name: d.name, args: []string{to}, line: d.line}, "an upstream is an address with or without port, or the path of a resolv.conf")
		return "", false
	}
	return to, true
}

// ParseUpstream reads ADDRESS or ADDRESS:PORT, with port 53 for none.
func ParseUpstream(s string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return netip.AddrPortFrom(a, 53), err
}

func (p *corefileParser) forwardOption(o directive, r *Route) {
	switch o.name {
	case "except":
		r.Except = append(r.Except, canonicalAll(o.args)...)
	case "policy":
		policy := Policy(arg(o, 0))
		if !slices.Contains([]Policy{Random, RoundRobin, Sequential}, policy) {
			p.invalid(o, "%q is not random, round_robin or sequential", policy)
			return
		}
		r.Policy = policy
	case "max_fails":
		p.number(o, &r.MaxFails)
	case "max_concurrent":
		p.number(o, &r.MaxConcurrent)
	case "health_check":
		p.duration(o, 0, &r.HealthCheck)
		if len(o.args) > 1 {
			p.ignored(o, "only the interval is honoured")
		}
	case "force_tcp":
		r.ForceTCP = true
	case "failover":
		for _, name := range o.args {
			code, ok := rcodeNamed(name)
			if !ok {
				p.invalid(o, "%q is not a response code, as SERVFAIL", name)
				continue
			}
			r.Failover = append(r.Failover, code)
		}
	case "expire", "prefer_udp":
		// No connection is kept that could expire, and UDP is always tried first.
	default:
		p.ignored(o, "this option of forward is not honoured")
	}
}

func (p *corefileParser) number(o directive, into *int) {
	n, err := strconv.ParseUint(arg(o, 0), 10, 31)
	if err != nil {
		p.invalid(o, "%q is not a number", arg(o, 0))
		return
	}
	*into = int(n)
}

func (p *corefileParser) duration(o directive, i int, into *time.Duration) {
	v, err := time.ParseDuration(arg(o, i))
	if err != nil || v <= 0 {
		p.invalid(o, "%q is not a duration, as 500ms", arg(o, i))
		return
	}
	*into = v
}
