package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairway/dns"
	"fairway/packet"
)

// address splits ADDR:PORT; ok is false for what names no address.
func address(to string) (a netip.Addr, port string, ok bool) {
	i := strings.LastIndexByte(to, ':')
	if i < 0 {
		return a, "", false
	}
	host, bracketed := strings.CutPrefix(to[:i], "[")
	if bracketed {
		host, bracketed = strings.CutSuffix(host, "]")
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap(), to[i+1:], err == nil && (bracketed || a.Is4())
}

func portNumber(to, s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("--to %s: port %q is not 1 to 65535", to, s)
	}
	return uint16(n), nil
}

// name follows a DNS name, and a packet to its first address when a port is given.
func (w *World) name(r *Report, from From, to string, proto packet.Protocol) error {
	name, portText, hasPort := strings.Cut(to, ":")
	port := uint16(0)
	if hasPort {
		var err error
		if port, err = portNumber(to, portText); err != nil {
			return err
		}
	}
	if addr, found := w.resolve(r, from, name); found == inside && hasPort {
		w.packet(r, from, netip.AddrPortFrom(addr, port), proto)
	}
	return nil
}

// found is what came of a name.
type found int

const (
	nowhere  found = iota // the cluster says there is none
	inside                // it has an address here
	alias                 // an ExternalName leads out of the cluster
	upstream              // only the upstream resolver knows
	bare                  // one label, none of the cluster's: nobody knows
)

// resolve walks the search list.
func (w *World) resolve(r *Report, from From, name string) (netip.Addr, found) {
	var search []string
	if from.Namespace != "" {
		search = w.Zone.Search(from.Namespace)
	}
	walk := w.Zone.Trace(name, append(search, from.Searches...), cmp.Or(from.NDots, dns.NDots))
	if from.Elsewhere != "" {
		return w.elsewhere(r, from, name, walk)
	}
	var last dns.Try
	for _, last = range walk.Tries {
		for _, rec := range slices.Concat(last.A.Answer, last.AAAA.Answer) {
			if _, ok := from.Addr(rec.Addr.Is6()); last.Name == walk.Found && rec.Addr.IsValid() && ok {
				r.Arrives = true
				r.add("name "+name, walk.Steps(), fmt.Sprintf("%s is %s", trimDot(walk.Found), rec.Addr))
				return rec.Addr, inside
			}
		}
	}
	what, result := nowhere, "does not resolve"
	switch {
	case walk.Found != "" && last.A.Chase != "":
		what, result = alias, fmt.Sprintf("leads to %s, a name outside the cluster: only the upstream resolver knows its address", trimDot(last.A.Chase))
	case walk.Found != "":
		result = fmt.Sprintf("%s has no address of a family of %s", trimDot(walk.Found), from)
	case len(walk.Upstream) > 0 && !strings.Contains(trimDot(name), "."):
		what, result = bare, name+" is not known here: it is no name of the cluster, and one label alone is no name outside"
	case len(walk.Upstream) > 0 && strings.HasSuffix(trimDot(name), ".svc"):
		result = name + " is not known here: it does not resolve in the cluster, and svc is no domain outside"
	case len(walk.Upstream) > 0:
		what, result = upstream, "not a name of the cluster: only the upstream resolver knows whether there is a "+trimDot(walk.Upstream[len(walk.Upstream)-1])
	}
	r.Leaves = what == alias || what == upstream
	r.add("name "+name, walk.Steps(), result)
	return netip.Addr{}, what
}

// elsewhere is a name asked of servers that know nothing of the cluster.
func (w *World) elsewhere(r *Report, from From, name string, walk dns.Walk) (netip.Addr, found) {
	steps := []packet.Step{{Where: name, What: from.Elsewhere}}
	if walk.Found != "" || strings.HasSuffix(trimDot(name), ".svc") || !strings.Contains(trimDot(name), ".") {
		r.add("name "+name, steps, "does not resolve for it: the cluster's names are not known there")
		return netip.Addr{}, nowhere
	}
	r.Leaves = true
	r.add("name "+name, steps, "only they know whether there is a "+trimDot(name))
	return netip.Addr{}, upstream
}

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }
