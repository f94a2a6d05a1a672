// Package kernel is the only hand on the node's rules: programs compiled elsewhere come
// in and are applied by netlink or by iptables-restore, and what the kernel has goes out
// in the same form; stale flows are deleted, addresses listed. It takes no decision: what
// to write, and when, is its caller's.
package kernel

import (
	"fmt"
	"net"
	"net/netip"

	"fairway/proxy/ipvs"

	"github.com/vishvananda/netlink"
)

// LocalAddrs lists every address on the interfaces of the current network namespace,
// loopback included; the VIPs that IPVS mode binds are not the node's own.
func LocalAddrs() ([]netip.Addr, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("local addresses: %w", err)
	}
	var out []netip.Addr
	for _, l := range links {
		if l.Name == ipvs.Device {
			continue
		}
		addrs, err := l.Addrs()
		if err != nil {
			continue // the interface is gone meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out = append(out, p.Addr().Unmap().WithZone(""))
			}
		}
	}
	return out, nil
}

// DefaultAddrs guesses a machine's own addresses, one per family, when nobody tells
// them: the source a packet to the outside would take, else the first global address.
func DefaultAddrs() []netip.Addr {
	var out []netip.Addr
	for _, probe := range []string{"192.0.2.1", "2001:db8::1"} {
		if a, ok := sourceFor(net.ParseIP(probe)); ok {
			out = append(out, a)
		}
	}
	if len(out) > 0 {
		return out
	}
	all, err := LocalAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if a.IsGlobalUnicast() {
			return []netip.Addr{a}
		}
	}
	return nil
}

func sourceFor(dst net.IP) (netip.Addr, bool) {
	routes, err := netlink.RouteGet(dst)
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(routes[0].Src)
	return a.Unmap(), ok && a.IsGlobalUnicast()
}
