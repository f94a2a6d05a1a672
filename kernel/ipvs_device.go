package kernel

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"fairway/proxy/ipvs"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func (k *IPVS) handle() (*netlink.Handle, error) {
	if k.netns == 0 {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	return netlink.NewHandleAt(netns.NsHandle(k.netns), unix.NETLINK_ROUTE)
}

// device finds the dummy device, and makes it when asked to: without ARP, for no other
// machine is to hear of its addresses, and without one of its own.
func device(nl *netlink.Handle, create bool) (netlink.Link, error) {
	link, err := nl.LinkByName(ipvs.Device)
	var missing netlink.LinkNotFoundError
	if err == nil || !errors.As(err, &missing) {
		return link, err
	}
	if !create {
		return nil, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = ipvs.Device
	if err := nl.LinkAdd(&netlink.Dummy{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%w: the kernel has no dummy device (module dummy): %w", ErrNoIPVS, err)
	}
	if link, err = nl.LinkByName(ipvs.Device); err != nil {
		return nil, err
	}
	_ = nl.LinkSetIP6AddrGenMode(link, 1) // none; a kernel without IPv6 has nothing to set
	if err := nl.LinkSetARPOff(link); err != nil {
		return nil, err
	}
	return link, nl.LinkSetUp(link)
}

// withDevice runs f on the device; f does not run when it is not there and not to be
// made.
func (k *IPVS) withDevice(create bool, f func(*netlink.Handle, netlink.Link) error) error {
	nl, err := k.handle()
	if err != nil {
		return fmt.Errorf("%s: %w", ipvs.Device, err)
	}
	defer nl.Close()
	link, err := device(nl, create)
	if err == nil && link != nil {
		err = f(nl, link)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ipvs.Device, err)
	}
	return nil
}

// Bind puts addresses on the device. None becomes the source of other packets: IPv4
// ones have the host's scope, IPv6 ones are deprecated.
func (k *IPVS) Bind(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	return k.withDevice(true, func(nl *netlink.Handle, link netlink.Link) error {
		for _, a := range addrs {
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Scope: unix.RT_SCOPE_HOST}
			if a.Is6() {
				addr.Flags, addr.Scope, addr.ValidLft = unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE, 0, math.MaxUint32
			}
			if err := nl.AddrAdd(link, addr); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		return nil
	})
}

// Unbind takes addresses off the device.
func (k *IPVS) Unbind(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	return k.withDevice(false, func(nl *netlink.Handle, link netlink.Link) error {
		for _, a := range addrs {
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
			if err := nl.AddrDel(link, addr); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		return nil
	})
}

// bound lists the device's addresses of a family, link-local ones aside.
func (k *IPVS) bound(v6 bool) (map[netip.Addr]bool, error) {
	out := map[netip.Addr]bool{}
	err := k.withDevice(false, func(nl *netlink.Handle, link netlink.Link) error {
		list, err := nl.AddrList(link, int(addressFamily(v6)))
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.Unmap().IsLinkLocalUnicast() {
				out[ip.Unmap()] = true
			}
		}
		return err
	})
	return out, err
}

// RemoveDevice removes the device with what is left on it.
func (k *IPVS) RemoveDevice() error {
	return k.withDevice(false, func(nl *netlink.Handle, link netlink.Link) error { return nl.LinkDel(link) })
}
