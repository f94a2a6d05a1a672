// Package fabric makes the lab's LAN: one bridge in a network namespace of its
// own, and hosts on it, each a namespace joined to the bridge by a cable (a
// veth pair). In comes the address family; out go open namespaces. It never
// touches the namespace it is called from, and no route of the LAN leads out
// of the lab.
package fabric

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"fairway/lab/netspace"
	"fairway/lab/topology"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bridge is the name of the LAN's bridge; the control plane listens on its
// addresses.
const Bridge = "fab0"

// Port is the name of a host's interface on the LAN.
const Port = "eth0"

// Spaces are the lab's namespaces that exist whatever nodes there are.
type Spaces struct {
	LAN    *os.File // the bridge, and the control plane
	Client *os.File // a host outside the cluster
	Router *os.File // a host that plays the site's router
}

// Close lets go of the namespaces. They live on while others hold them.
func (s Spaces) Close() {
	for _, f := range []*os.File{s.LAN, s.Client, s.Router} {
		if f != nil {
			f.Close()
		}
	}
}

// Build makes the LAN with its client and router.
func Build(f topology.Family) (Spaces, error) {
	var s Spaces
	for _, at := range []**os.File{&s.LAN, &s.Client, &s.Router} {
		ns, err := newSpace()
		if err != nil {
			s.Close()
			return Spaces{}, err
		}
		*at = ns
	}
	err := buildBridge(s.LAN, f)
	if err == nil {
		err = Attach(s.LAN, s.Client, "client", f.Client())
	}
	if err == nil {
		err = Attach(s.LAN, s.Router, "router", f.Router())
	}
	if err != nil {
		s.Close()
		return Spaces{}, err
	}
	return s, nil
}

// BuildNode makes the namespace of node number n on the LAN: its addresses,
// forwarding, and a default route to the bridge. That route leads nowhere
// further, but without one the kernel would refuse a packet to a Service
// address before a service proxy sees it.
func BuildNode(lan *os.File, f topology.Family, n int) (*os.File, error) {
	name := topology.NodeName(n)
	ns, err := newSpace()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := Attach(lan, ns, name, f.Node(n)); err != nil {
		ns.Close()
		return nil, err
	}
	err = withHandle(ns, func(h *netlink.Handle) error { return addDefaults(h, f) })
	if err == nil {
		err = netspace.Do(ns, allowForwarding)
	}
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ns, nil
}

// Attach joins ns to the LAN by a cable: interface eth0 with addrs on its end,
// an interface called to-<name> on the bridge's.
func Attach(lan, ns *os.File, name string, addrs []netip.Addr) error {
	err := withHandle(lan, func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(Bridge)
		if err != nil {
			return fmt.Errorf("bridge %s: %w", Bridge, err)
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "to-" + name
		attrs.MasterIndex = bridge.Attrs().Index
		cable := &netlink.Veth{LinkAttrs: attrs, PeerName: Port, PeerNamespace: netlink.NsFd(int(ns.Fd()))}
		if err := h.LinkAdd(cable); err != nil {
			return fmt.Errorf("cable: %w", err)
		}
		return up(h, attrs.Name)
	})
	if err == nil {
		err = withHandle(ns, func(h *netlink.Handle) error { return address(h, Port, addrs) })
	}
	if err != nil {
		return fmt.Errorf("attach %s to the LAN: %w", name, err)
	}
	return nil
}

func newSpace() (*os.File, error) {
	ns, err := netspace.New()
	if err != nil {
		return nil, err
	}
	err = netspace.Do(ns, quietIPv6)
	if err == nil {
		err = withHandle(ns, func(h *netlink.Handle) error { return up(h, "lo") })
	}
	if err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

func buildBridge(lan *os.File, f topology.Family) error {
	err := withHandle(lan, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = Bridge
		// A fixed address: a bridge left to itself changes it with its ports,
		// and every neighbour's ARP entry with it.
		attrs.HardwareAddr = net.HardwareAddr{0x02, 0xfa, 0x1e, 0, 0, 1}
		snooping := false
		if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}); err != nil {
			return fmt.Errorf("bridge %s: %w", Bridge, err)
		}
		return address(h, Bridge, f.Fabric())
	})
	if err != nil {
		return err
	}
	return netspace.Do(lan, func() error {
		if err := allowForwarding(); err != nil {
			return err
		}
		for _, name := range []string{"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables",
			"ipv4/conf/all/send_redirects", "ipv4/conf/" + Bridge + "/send_redirects"} {
			if err := netspace.SetSysctl(name, "0"); err != nil {
				return err
			}
		}
		return nil
	})
}

// quietIPv6 turns off duplicate address detection, which holds back every new
// IPv6 address for two seconds.
func quietIPv6() error {
	for _, name := range []string{"all/accept_dad", "default/accept_dad", "default/dad_transmits",
		"all/accept_ra", "default/accept_ra"} {
		if err := netspace.SetSysctl("ipv6/conf/"+name, "0"); err != nil {
			return err
		}
	}
	return nil
}

func allowForwarding() error {
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/default/forwarding"} {
		if err := netspace.SetSysctl(name, "1"); err != nil {
			return err
		}
	}
	return nil
}

func addDefaults(h *netlink.Handle, f topology.Family) error {
	link, err := h.LinkByName(Port)
	if err != nil {
		return fmt.Errorf("%s: %w", Port, err)
	}
	for _, gw := range f.Fabric() {
		any := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		if gw.Is6() {
			any = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: any, Gw: gw.AsSlice()}
		if err := h.RouteAdd(route); err != nil {
			return fmt.Errorf("default route via %s: %w", gw, err)
		}
	}
	return nil
}

func address(h *netlink.Handle, name string, addrs []netip.Addr) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, a := range addrs {
		p := topology.LAN(a)
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(p.Bits(), a.BitLen())}}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("%s: address %s: %w", name, p, err)
		}
	}
	return up(h, name)
}

func up(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("%s: set up: %w", name, err)
	}
	return nil
}

func withHandle(ns *os.File, fn func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()))
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	return fn(h)
}
