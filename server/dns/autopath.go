package dnsserver

import (
	"context"
	"net/netip"
	"unsafe"

	"fairway/dns"

	wire "github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// walk does the rest of a Pod's search list for it, when the first name of it does not
// exist: the reply leads by a CNAME, which nobody keeps, to the first name that does. A
// and AAAA come from the same step, since what exists does so for every type. nil when
// there is nothing to walk, or nothing found.
func (s *Server) walk(req *wire.Msg, zone *dns.Zone, client netip.Addr) *wire.Msg {
	q := req.Question[0]
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	for _, name := range zone.AutoPath(dns.Question{Name: q.Name, Type: dns.Type(q.Qtype)}, client) {
		step := req.Copy()
		step.Question[0].Name = name
		m := s.lookup(ctx, step, zone)
		if m.Rcode == wire.RcodeNameError {
			continue
		}
		m.Question = req.Question
		if m.Rcode == wire.RcodeSuccess {
			link := &wire.CNAME{Hdr: wire.RR_Header{Name: q.Name, Rrtype: wire.TypeCNAME, Class: wire.ClassINET}, Target: name}
			m.Answer = append([]wire.RR{link}, m.Answer...)
		}
		return m
	}
	return nil
}

// addrOf is the address a datagram came from.
func addrOf(a *unix.RawSockaddrInet6) netip.Addr {
	if a.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(a)).Addr)
	}
	return netip.AddrFrom16(a.Addr).Unmap()
}
