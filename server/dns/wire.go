package dnsserver

import (
	"math/rand/v2"
	"net"
	"strings"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// ownSize is the UDP payload size advertised (DNS flag day 2020).
const ownSize = 1232

// render turns a zone's Reply into a message with the flags of an authority.
func render(req *wire.Msg, r dns.Reply) *wire.Msg {
	m := new(wire.Msg)
	m.SetRcode(req, int(r.Rcode))
	m.Authoritative = true
	m.Answer, m.Ns, m.Extra = records(r.Answer), records(r.Authority), records(r.Additional)
	return m
}

func records(list []dns.Record) []wire.RR {
	if len(list) == 0 {
		return nil
	}
	out := make([]wire.RR, len(list))
	for i, r := range list {
		out[i] = record(r)
	}
	return out
}

func record(r dns.Record) wire.RR {
	h := wire.RR_Header{Name: r.Name, Rrtype: uint16(r.Type), Class: wire.ClassINET, Ttl: r.TTL}
	switch r.Type {
	case dns.TypeA:
		return &wire.A{Hdr: h, A: net.IP(r.Addr.AsSlice())}
	case dns.TypeAAAA:
		return &wire.AAAA{Hdr: h, AAAA: net.IP(r.Addr.AsSlice())}
	case dns.TypeCNAME:
		return &wire.CNAME{Hdr: h, Target: r.Target}
	case dns.TypeNS:
		return &wire.NS{Hdr: h, Ns: r.Target}
	case dns.TypePTR:
		return &wire.PTR{Hdr: h, Ptr: r.Target}
	case dns.TypeSRV:
		return &wire.SRV{Hdr: h, Priority: r.Priority, Weight: r.Weight, Port: r.Port, Target: r.Target}
	case dns.TypeTXT:
		return &wire.TXT{Hdr: h, Txt: []string{r.Text}}
	case dns.TypeSOA:
		s := r.SOA
		return &wire.SOA{Hdr: h, Ns: s.MName, Mbox: s.RName, Serial: s.Serial, Refresh: s.Refresh, Retry: s.Retry, Expire: s.Expire, Minttl: s.Minimum}
	}
	return &wire.RFC3597{Hdr: h} // no other type is in a zone
}

// fit echoes EDNS and cuts m to what the client can take: compressed when it would
// otherwise not fit, and marked TC only when answers or authority had to go, since a
// client can do without the addresses in Additional (RFC 2181 section 9).
func fit(m, req *wire.Msg, tcp bool) {
	size := wire.MinMsgSize
	if opt := req.IsEdns0(); opt != nil {
		size = min(max(size, int(opt.UDPSize())), dns.MaxUDP)
		m.Extra = append(m.Extra[:len(m.Extra):len(m.Extra)], ednsOf(opt))
	}
	if tcp {
		size = wire.MaxMsgSize - 1
	}
	answers, authority, was := len(m.Answer), len(m.Ns), m.Truncated
	m.Truncate(size)
	m.Truncated = was || len(m.Answer) < answers || len(m.Ns) < authority
}

// ednsOf is the OPT record of the reply; options of the query are not echoed (RFC 6891
// section 6.1.2).
func ednsOf(asked *wire.OPT) *wire.OPT {
	opt := &wire.OPT{Hdr: wire.RR_Header{Name: ".", Rrtype: wire.TypeOPT}}
	opt.SetUDPSize(ownSize)
	opt.SetDo(asked.Do())
	return opt
}

func withoutOPT(extra []wire.RR) []wire.RR {
	var out []wire.RR
	for _, rr := range extra {
		if rr.Header().Rrtype != wire.TypeOPT {
			out = append(out, rr)
		}
	}
	return out
}

// shuffle puts the addresses at the end of an answer, behind any CNAMEs, in random
// order, so that clients which take the first spread over all.
func shuffle(answer []wire.RR) {
	first := len(answer)
	for first > 0 && isAddress(answer[first-1]) {
		first--
	}
	tail := answer[first:]
	rand.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
}

func isAddress(rr wire.RR) bool {
	t := rr.Header().Rrtype
	return t == wire.TypeA || t == wire.TypeAAAA
}

// respell gives the owner names of an answer the question's spelling, which a cached
// answer need not have. Records are copied, never changed.
func respell(m *wire.Msg) {
	asked := m.Question[0].Name
	out := make([]wire.RR, len(m.Answer))
	for i, rr := range m.Answer {
		if n := rr.Header().Name; n != asked && strings.EqualFold(n, asked) {
			rr = wire.Copy(rr)
			rr.Header().Name = asked
		}
		out[i] = rr
	}
	m.Answer = out
}
