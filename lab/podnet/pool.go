package podnet

import (
	"fmt"
	"net/netip"
)

// Pool hands out the addresses of one Pod CIDR in turn, so that an address just given back is the last to be used again:
// flows and name-server answers of the Pod that had it can run out. It is not safe for concurrent use.
type Pool struct {
	prefix netip.Prefix
	last   netip.Addr
	used   map[netip.Addr]bool
}

// NewPool returns a pool over prefix. The network's own address, the next one (by custom a gateway) and, in IPv4, the
// broadcast address are never given.
func NewPool(prefix netip.Prefix) *Pool {
	return &Pool{prefix: prefix.Masked(), used: map[netip.Addr]bool{}}
}

// Take returns a free address, or an error that names the prefix when there is none.
func (p *Pool) Take() (netip.Addr, error) {
	first := p.prefix.Addr().Next().Next()
	addr := first
	if p.last.IsValid() {
		addr = p.last.Next()
	}
	for tries := 0; tries <= len(p.used)+1; tries++ {
		if !p.usable(addr) {
			addr = first
		}
		if p.usable(addr) && !p.used[addr] {
			p.used[addr] = true
			p.last = addr
			return addr, nil
		}
		addr = addr.Next()
	}
	return netip.Addr{}, fmt.Errorf("pod CIDR %s: no free address, %d in use", p.prefix, len(p.used))
}

// Give returns an address; one that was never taken is ignored.
func (p *Pool) Give(addr netip.Addr) { delete(p.used, addr) }

func (p *Pool) usable(addr netip.Addr) bool {
	if !p.prefix.Contains(addr) {
		return false
	}
	// The IPv4 broadcast address is the one whose successor lies outside.
	return !addr.Is4() || p.prefix.Contains(addr.Next())
}
