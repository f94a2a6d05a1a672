// Package netlab makes a node with its pods, pods of other nodes and outside clients from
// network namespaces that no route leads out of, and sends real packets through the
// node's kernel: a Layout comes in, an Observation per packet goes out (endpoint
// reached, source seen, refused, silence). It knows no rule and no backend.
package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Layout says which addresses are where.
type Layout struct {
	// NodeAddrs are the node's own, put on its loopback interface.
	NodeAddrs []netip.Addr
	// Pods are the node's pods, a namespace each.
	Pods []Pod
	// Bridge, when set, is the node's interface with all pods behind it.
	Bridge string
	// Remote are the addresses of pods on other nodes, a namespace each: in one they
	// would answer each other past the node.
	Remote []netip.Addr
	// Clients are those of machines outside; they share a namespace.
	Clients []netip.Addr
}

// Pod is one pod of the node; Iface is the node's end of its cable, named for it when
// empty.
type Pod struct {
	Addrs []netip.Addr
	Iface string
}

// Lab is a running layout.
type Lab struct {
	Node    *Host
	Pods    []*Host
	Remote  []*Host
	Clients *Host

	servers []closer
	cables  int
}

type closer interface{ Close() error }

// gateway4 and gateway6 are the node's end of every cable; being link-local they say
// nothing about the cluster.
const (
	gateway4 = "169.254.1.1/32"
	gateway6 = "fe80::1/64"
)

// Missing tells why no lab can be made here, nil when one can.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root (run as root, or in `unshare -Urn`)")
	}
	return nil
}

// New builds a layout. Close takes it down.
func New(l Layout) (*Lab, error) {
	lab := &Lab{}
	if err := lab.build(l); err != nil {
		lab.Close()
		return nil, fmt.Errorf("netlab: %w", err)
	}
	return lab, nil
}

func (lab *Lab) build(l Layout) error {
	var err error
	if lab.Node, err = newHost("node", l.NodeAddrs, true); err != nil {
		return err
	}
	if lab.Clients, err = lab.attach("client", "client", "", l.Clients); err != nil {
		return err
	}
	if l.Bridge != "" {
		if err := lab.Node.bridge(l.Bridge); err != nil {
			return err
		}
	}
	for i, a := range l.Remote {
		h, err := lab.attach("remote pod "+a.String(), fmt.Sprintf("far%d", i), "", []netip.Addr{a})
		if err != nil {
			return err
		}
		lab.Remote = append(lab.Remote, h)
	}
	for i, p := range l.Pods {
		iface := p.Iface
		if iface == "" {
			iface = fmt.Sprintf("pod%d", i)
		}
		h, err := lab.attach(fmt.Sprintf("pod %v", p.Addrs), iface, l.Bridge, p.Addrs)
		if err != nil {
			return err
		}
		lab.Pods = append(lab.Pods, h)
	}
	if err := lab.Node.defaultVia(l.Clients, "client"); err != nil {
		return err
	}
	for _, h := range lab.hosts() {
		if err := h.settled(); err != nil {
			return err
		}
	}
	return nil
}

// attach makes a host and a cable between it and the node, or the node's bridge when one
// is named. Everything the host sends goes to the node; the node sends each of addrs
// down the cable.
func (lab *Lab) attach(name, iface, bridge string, addrs []netip.Addr) (*Host, error) {
	h, err := newHost(name, nil, false)
	if err != nil {
		return nil, err
	}
	if err := lab.cable(h, iface, bridge, addrs); err != nil {
		h.close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

func (lab *Lab) cable(h *Host, iface, bridge string, addrs []netip.Addr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = iface
	// The kernel takes its time (up to a second) to notice that a cable is plugged in
	// when both ends have the same number.
	lab.cables++
	attrs.Index = 1000 + lab.cables
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(h.ns))}
	if err := lab.Node.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("cable %s: %w", iface, err)
	}
	near, err := lab.Node.up(iface)
	if err != nil {
		return err
	}
	far, err := h.up("eth0")
	if err != nil {
		return err
	}
	if bridge != "" {
		near, err = lab.Node.port(near, bridge)
	} else {
		err = lab.Node.gateway(near)
	}
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := h.addAddr(far, netip.PrefixFrom(a, a.BitLen()), unix.RT_SCOPE_UNIVERSE); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
		if err := lab.Node.nl.RouteAdd(&netlink.Route{LinkIndex: near.Attrs().Index, Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), Scope: unix.RT_SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to %s: %w", a, err)
		}
	}
	for _, gw := range []string{gateway4, gateway6} {
		ip := net.IP(netip.MustParsePrefix(gw).Addr().AsSlice())
		if err := h.nl.RouteAdd(&netlink.Route{LinkIndex: far.Attrs().Index, Gw: ip, Flags: int(netlink.FLAG_ONLINK)}); err != nil {
			return fmt.Errorf("default route: %w", err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (lab *Lab) hosts() []*Host {
	return slices.Concat([]*Host{lab.Node, lab.Clients}, lab.Pods, lab.Remote)
}

// Host finds who has an address: the node, a pod or a client.
func (lab *Lab) Host(a netip.Addr) *Host {
	for _, h := range lab.hosts() {
		if slices.Contains(h.addrs, a) {
			return h
		}
	}
	return nil
}

// CloseServers ends every server that Serve has started.
func (lab *Lab) CloseServers() {
	for _, s := range lab.servers {
		_ = s.Close()
	}
	lab.servers = nil
}

// Close takes the lab down; its interfaces go with the namespaces.
func (lab *Lab) Close() {
	lab.CloseServers()
	for _, h := range lab.hosts() {
		if h != nil {
			h.close()
		}
	}
}
