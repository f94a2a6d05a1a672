package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// InPod is the name of the interface inside every Pod.
const InPod = "eth0"

// connect makes the pair and sets both ends. Every Pod has the same two gateways, 169.254.1.1 and fe80::1, which are
// addresses of the node's end of its own pair.
func (n *Network) connect(link Link, nsFD int) error {
	pod, err := netlink.NewHandleAt(netns.NsHandle(nsFD))
	if err != nil {
		return fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer pod.Close()
	if err := setLoopback(pod); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = link.Host
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: InPod, PeerNamespace: netlink.NsFd(nsFD)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make the veth pair: %w", err)
	}
	host, err := netlink.LinkByName(link.Host)
	if err != nil {
		return fmt.Errorf("find the veth: %w", err)
	}
	inner, err := pod.LinkByName(InPod)
	if err != nil {
		return fmt.Errorf("find %s: %w", InPod, err)
	}
	if err := netlink.LinkSetUp(host); err != nil {
		return fmt.Errorf("raise the veth: %w", err)
	}
	if err := pod.LinkSetUp(inner); err != nil {
		return fmt.Errorf("raise %s: %w", InPod, err)
	}
	for _, ip := range link.IPs {
		if err := n.wire(pod, host, inner, ip); err != nil {
			return fmt.Errorf("%s: %w", ip, err)
		}
	}
	return nil
}

func setLoopback(pod *netlink.Handle) error {
	lo, err := pod.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := pod.LinkSetUp(lo); err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	return nil
}

// wire sets one address: it, a gateway and a default route in the Pod; the gateway and a route to it in the node.
func (n *Network) wire(pod *netlink.Handle, host, inner netlink.Link, ip netip.Addr) error {
	gateway := netip.MustParseAddr("169.254.1.1")
	if ip.Is6() {
		gateway = netip.MustParseAddr("fe80::1")
	}
	if err := netlink.AddrAdd(host, single(gateway, unix.RT_SCOPE_LINK)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("gateway address: %w", err)
	}
	// Without a source of its own the route would make the node speak to its Pods as 169.254.1.1.
	back := &netlink.Route{LinkIndex: host.Attrs().Index, Dst: hostNet(ip), Scope: netlink.SCOPE_LINK, Src: n.nodeIP(ip)}
	if err := netlink.RouteReplace(back); err != nil {
		return fmt.Errorf("route in the node: %w", err)
	}
	if err := pod.AddrAdd(inner, single(ip, unix.RT_SCOPE_UNIVERSE)); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	index := inner.Attrs().Index
	toGateway := &netlink.Route{LinkIndex: index, Dst: hostNet(gateway), Scope: netlink.SCOPE_LINK}
	if err := pod.RouteAdd(toGateway); err != nil {
		return fmt.Errorf("route to the gateway: %w", err)
	}
	if err := pod.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

// single is the address alone, without a subnet; duplicate address detection would only delay it.
func single(ip netip.Addr, scope int) *netlink.Addr {
	addr := &netlink.Addr{IPNet: hostNet(ip), Scope: scope}
	if ip.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

func hostNet(ip netip.Addr) *net.IPNet {
	bits := ip.BitLen()
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, bits)}
}

func (n *Network) nodeIP(like netip.Addr) net.IP {
	for _, ip := range n.nodeIPs {
		if ip.Is4() == like.Is4() {
			return ip.AsSlice()
		}
	}
	return nil
}

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: remove: %w", name, err)
	}
	return nil
}
