package stream

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST (linux/netfilter_ipv4.h,
// netfilter_ipv6/ip6_tables.h).
const soOriginalDst = 80

// captured tells whether rules of this machine led the connection to its listener, whose
// own address the client then did not ask for.
func captured(c *net.TCPConn) bool {
	own := c.LocalAddr().(*net.TCPAddr).AddrPort()
	asked, err := originalDst(c, own.Addr().Unmap().Is6())
	return err == nil && asked != netip.AddrPortFrom(own.Addr().Unmap(), own.Port())
}

// originalDst is where the client's packets went to before they were translated.
func originalDst(c *net.TCPConn, v6 bool) (to netip.AddrPort, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	ctlErr := rc.Control(func(fd uintptr) {
		if v6 {
			// A struct that begins with a sockaddr_in6, which is what the kernel writes.
			var info *unix.IPv6MTUInfo
			if info, err = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, soOriginalDst); err == nil {
				to = netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr), info.Addr.Port<<8|info.Addr.Port>>8)
			}
			return
		}
		// Sixteen bytes, as a sockaddr_in has.
		var b *unix.IPv6Mreq
		if b, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst); err == nil {
			a := b.Multiaddr
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
		}
	})
	if ctlErr != nil {
		err = ctlErr
	}
	return to, err
}
