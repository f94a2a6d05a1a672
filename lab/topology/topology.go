// Package topology is the lab's address plan. In come the address family and a
// node's number; out go addresses, ranges and URLs. It is pure: it reads no
// file and opens no socket. Every lab uses the same addresses, because all of
// them live in network namespaces of their own.
package topology

import (
	"fmt"
	"net/netip"
	"strings"
)

// Family is the lab's set of IP families.
type Family string

// The families a lab can have. In Dual the first address is IPv4.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
	Dual Family = "dual"
)

// MaxNodes is the highest node number: nodes have .11 to .90 on the LAN, the
// pool for LoadBalancer addresses begins at .100.
const MaxNodes = 80

// Numbers of the hosts on the LAN; a node has 10 + its number.
const (
	hostFabric = 1
	hostClient = 200
	hostRouter = 201
)

// ParseFamily reads a family's name; an unknown one is an error.
func ParseFamily(s string) (Family, error) {
	switch f := Family(s); f {
	case IPv4, IPv6, Dual:
		return f, nil
	}
	return "", fmt.Errorf("family %q: want ipv4, ipv6 or dual", s)
}

// Fabric returns the addresses of the LAN's bridge, where the API server is.
func (f Family) Fabric() []netip.Addr { return f.host(hostFabric) }

// Client returns the addresses of the host outside the cluster.
func (f Family) Client() []netip.Addr { return f.host(hostClient) }

// Router returns the addresses of the host that plays the site's router.
func (f Family) Router() []netip.Addr { return f.host(hostRouter) }

// Node returns the addresses of node number n, counted from 1.
func (f Family) Node(n int) []netip.Addr { return f.host(10 + n) }

// LAN returns addr with the LAN's prefix length.
func LAN(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(addr, 24)
	}
	return netip.PrefixFrom(addr, 64)
}

// PodRange is the cluster's pod range(s), comma-separated as Kubernetes'
// flags want it.
func (f Family) PodRange() string { return f.join("10.244.0.0/16", "fd00:244::/48") }

// ServiceRange is the cluster's service range(s), comma-separated.
func (f Family) ServiceRange() string { return f.join("10.96.0.0/16", "fd00:96::/112") }

// DNS returns the addresses of the cluster's DNS Service.
func (f Family) DNS() []string { return strings.Split(f.join("10.96.0.10", "fd00:96::a"), ",") }

// FirstService returns the addresses of Service default/kubernetes.
func (f Family) FirstService() []netip.Addr {
	var out []netip.Addr
	for s := range strings.SplitSeq(f.join("10.96.0.1", "fd00:96::1"), ",") {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// ServerURL is the API server as seen from inside the lab.
func (f Family) ServerURL() string {
	return "https://" + netip.AddrPortFrom(f.Fabric()[0], ServerPort).String()
}

// ServerPort is the API server's port inside the lab.
const ServerPort = 6443

// NodeName is the name of node number n.
func NodeName(n int) string { return fmt.Sprintf("node%d", n) }

// Unspecified is the wildcard address of the family's first half.
func (f Family) Unspecified() string {
	if f == IPv6 {
		return "::"
	}
	return "0.0.0.0"
}

func (f Family) host(n int) []netip.Addr {
	v4 := netip.AddrFrom4([4]byte{172, 30, 0, byte(n)})
	// The decimal digits are kept, so node1 is .11 and ::11.
	v6 := netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", n))
	switch f {
	case IPv6:
		return []netip.Addr{v6}
	case Dual:
		return []netip.Addr{v4, v6}
	}
	return []netip.Addr{v4}
}

func (f Family) join(v4, v6 string) string {
	switch f {
	case IPv6:
		return v6
	case Dual:
		return v4 + "," + v6
	}
	return v4
}

// Join writes addresses comma-separated, as --node-ip wants them.
func Join(addrs []netip.Addr) string {
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
	}
	return strings.Join(words, ",")
}

// Loopback returns the addresses by which the host's relay is called.
func Loopback() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}
