package ebpf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Text prints the maps, an element a line, with the Service ports they belong to where
// that is known.
func (p *Program) Text() string {
	var b strings.Builder
	p.each(func(part *Part) {
		if part.Port != nil {
			fmt.Fprintf(&b, "# %s %s\n", part.Port.Key, part.Port.Proto)
		}
		lines := make([]string, len(part.Entries))
		for i, e := range part.Entries {
			lines[i] = e.String()
		}
		if part.Port == nil {
			slices.Sort(lines)
		}
		for _, l := range lines {
			b.WriteString(l + "\n")
		}
	})
	return b.String()
}

// String prints an element: the map's name, the key and the value in plain words.
func (e Entry) String() string {
	k, v := reader(e.Key), reader(e.Value)
	switch e.Kind {
	case NodeAddrs:
		return fmt.Sprintf("%s %s%s", e.Kind, k.addr(), flagWords(v.u32(), "local", "nodeports"))
	case VIPs, Fronts:
		return fmt.Sprintf("%s %s", e.Kind, k.addr())
	case Pools:
		return e.poolText(k, v)
	case Tables:
		return fmt.Sprintf("%s %016x.%d %s", e.Kind, k.u64(), k.u32(), tableText(v))
	case Ranges:
		bits, service, addr := int(k.u32())-64, k.big64(), k.addr()
		if addr.Is4() {
			bits -= 96
		}
		return fmt.Sprintf("%s service %016x from %s", e.Kind, service, netip.PrefixFrom(addr, bits))
	case Frontends:
		return fmt.Sprintf("%s %s %s", e.Kind, frontendText(k), readFrontend(e.Value))
	}
	return fmt.Sprintf("%s %s", e.Kind, readSettings(e.Value))
}

func frontendText(k reader) string {
	a, port, proto := k.addr(), k.port(), protoName(k.u8())
	if a.IsUnspecified() {
		family := "ipv4"
		if a.Is6() {
			family = "ipv6"
		}
		return fmt.Sprintf("nodeport %d/%s %s", port, proto, family)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(a, port), proto)
}

func protoName(n uint8) string {
	return map[uint8]string{6: "tcp", 17: "udp"}[n]
}

func (f frontend) String() string {
	out := fmt.Sprintf("service %016x", f.service)
	if f.flags&feReject == 0 {
		out += " near " + poolName(f.near)
		if f.far != f.near {
			out += " far " + poolName(f.far)
		}
	}
	if f.affinity > 0 {
		out += fmt.Sprintf(" affinity %ds", f.affinity)
	}
	return out + flagWords(f.flags, "reject", "internal", "local", "restricted", "admit-self", "admit-node", "by-client")
}

func poolName(id uint64) string {
	if id == 0 {
		return "drop"
	}
	return fmt.Sprintf("%016x", id)
}

func (e Entry) poolText(k, v reader) string {
	id, chunk := k.u64(), k.u32()
	v.u64()
	count, slots := v.u32(), v.u32()
	out := fmt.Sprintf("%s %016x.%d of %d", e.Kind, id, chunk, count)
	if slots > 0 {
		out += fmt.Sprintf(" table %d", slots)
	}
	for _, a := range v.endpoints() {
		out += " " + a.String()
	}
	return out
}

func (r *reader) endpoints() []netip.AddrPort {
	var out []netip.AddrPort
	for len(*r) >= endpointSize {
		if a := r.endpoint(); a.Port() != 0 {
			out = append(out, a)
		}
	}
	return out
}

// tableText tells how many places each endpoint has.
func tableText(v reader) string {
	var places []int
	for len(v) > 0 {
		i := int(v.u16())
		for len(places) <= i {
			places = append(places, 0)
		}
		places[i]++
	}
	return fmt.Sprintf("places %v", places)
}

func (s settings) String() string {
	out := strings.TrimSpace(flagWords(s.flags, "masquerade-all", "detect4", "detect6", "by-link", "reject-unknown"))
	for _, a := range []netip.Addr{s.primary4, s.primary6} {
		if a.IsValid() && !a.IsUnspecified() {
			out += " primary " + a.String()
		}
	}
	for _, c := range []netip.Prefix{s.pods4, s.pods6} {
		if c.IsValid() {
			out += " pods " + c.String()
		}
	}
	for _, c := range s.services {
		out += " services " + c.String()
	}
	return strings.TrimSpace(out)
}

func flagWords(flags uint32, words ...string) string {
	out := ""
	for i, w := range words {
		if flags&(1<<i) != 0 {
			out += " " + w
		}
	}
	return out
}
