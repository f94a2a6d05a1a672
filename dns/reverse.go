package dns

import (
	"fmt"
	"net/netip"
	"strings"
)

// reverseName is the owner of a's PTR records (RFC 1035 section 3.5, RFC 3596
// section 2.5).
func reverseName(a netip.Addr) string {
	if a.Is4() {
		b := a.As4()
		return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0])
	}
	var s strings.Builder
	b := a.As16()
	for i := 15; i >= 0; i-- {
		fmt.Fprintf(&s, "%x.%x.", b[i]&15, b[i]>>4)
	}
	return s.String() + "ip6.arpa."
}

// reversed reads the address that canonical name stands for; false when it is not the
// name of one whole address.
func reversed(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		return reversed4(rest)
	}
	if rest, ok := strings.CutSuffix(name, ".ip6.arpa."); ok {
		return reversed6(rest)
	}
	return netip.Addr{}, false
}

// partOfAddress tells whether name stands for a prefix of addresses.
func partOfAddress(name string) bool {
	rest, v4 := strings.CutSuffix(name, ".in-addr.arpa.")
	digits, width, most := "0123456789", 3, 3
	if !v4 {
		rest, _ = strings.CutSuffix(name, ".ip6.arpa.")
		digits, width, most = "0123456789abcdef", 1, 31
	}
	labels := strings.Split(rest, ".")
	for _, l := range labels {
		if l == "" || len(l) > width || strings.Trim(l, digits) != "" {
			return false
		}
	}
	return len(labels) <= most
}

func reversed4(rest string) (netip.Addr, bool) {
	labels := strings.Split(rest, ".")
	if len(labels) != 4 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
	return a, err == nil
}

func reversed6(rest string) (netip.Addr, bool) {
	if len(rest) != 63 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i := range 32 {
		c := strings.IndexByte("0123456789abcdef", rest[2*i])
		if c < 0 || i < 31 && rest[2*i+1] != '.' {
			return netip.Addr{}, false
		}
		b[15-i/2] |= byte(c) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b), true
}
