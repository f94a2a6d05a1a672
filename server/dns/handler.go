package dnsserver

import (
	"context"
	"errors"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// chaseTimeout bounds how long the target of an ExternalName may take: a client gives
// up after 5 s, and a CNAME alone is better than nothing.
const chaseTimeout = 2 * time.Second

// maxSlow is the number of questions that may be under way outside of the packed
// answers; more are refused.
const maxSlow = 4096

// gate counts those that are in.
type gate struct{ in atomic.Int64 }

func (g *gate) enter() bool {
	if g.in.Add(1) > maxSlow {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() { g.in.Add(-1) }

// answer gives the reply to any message, and counts it; nil when it deserves none.
func (s *Server) answer(raw []byte, tcp bool, client netip.Addr, c *counts) []byte {
	start := time.Now()
	req := new(wire.Msg)
	if err := req.Unpack(raw); err != nil {
		s.metrics.malformed.Add(1)
		return formatError(raw)
	}
	if len(req.Question) != 1 || countOPT(req) > 1 {
		s.metrics.malformed.Add(1)
		return formatError(raw)
	}
	m := s.safely(req, client)
	fit(m, req, tcp)
	out, err := m.Pack()
	if err != nil {
		s.cfg.Log.Debug("dns: reply not packed", "question", req.Question[0].String(), "error", err)
		m = status(req, wire.RcodeServerFailure)
		if out, err = m.Pack(); err != nil {
			return nil
		}
	}
	q, opt := req.Question[0], req.IsEdns0()
	c.served(q.Qtype, m.Rcode, opt != nil && opt.Do(), len(raw), len(out))
	c.took(time.Since(start), 1)
	return out
}

// formatError is FORMERR with nothing but the header, which is all that is understood.
func formatError(raw []byte) []byte {
	if len(raw) < 12 {
		return nil
	}
	return []byte{raw[0], raw[1], 0x80 | raw[2]&0x79, wire.RcodeFormatError, 0, 0, 0, 0, 0, 0, 0, 0}
}

func countOPT(m *wire.Msg) int {
	n := 0
	for _, rr := range m.Extra {
		if rr.Header().Rrtype == wire.TypeOPT {
			n++
		}
	}
	return n
}

// safely answers SERVFAIL where reply would panic: one query must not take the node's
// rules, addresses and routes down with it.
func (s *Server) safely(req *wire.Msg, client netip.Addr) (m *wire.Msg) {
	defer func() {
		if p := recover(); p != nil {
			s.metrics.panics.Inc()
			s.cfg.Log.Error("dns: a query could not be answered; please report this", "question", req.Question[0].String(), "panic", p, "stack", string(debug.Stack()))
			m = status(req, wire.RcodeServerFailure)
		}
	}()
	return s.reply(req, client)
}

// reply works the reply out, whole and without regard to size.
func (s *Server) reply(req *wire.Msg, client netip.Addr) *wire.Msg {
	q := req.Question[0]
	switch opt := req.IsEdns0(); {
	case req.Opcode != wire.OpcodeQuery:
		return status(req, wire.RcodeNotImplemented)
	case opt != nil && opt.Version() != 0:
		return status(req, wire.RcodeBadVers)
	case q.Qclass == wire.ClassCHAOS:
		return s.chaos(req)
	case q.Qclass != wire.ClassINET, q.Qtype == wire.TypeAXFR, q.Qtype == wire.TypeIXFR:
		return status(req, wire.RcodeRefused)
	case q.Qtype == wire.TypeHINFO && s.forward.sawProbe(q.Name):
		return status(req, wire.RcodeRefused)
	}
	zone := s.zone.Load()
	if zone == nil {
		return status(req, wire.RcodeServerFailure)
	}
	m := s.lookup(context.Background(), req, zone)
	if m.Rcode == wire.RcodeNameError {
		if found := s.walk(req, zone, client); found != nil {
			return found
		}
	}
	return m
}

// lookup answers from the zone, or from who knows better.
func (s *Server) lookup(ctx context.Context, req *wire.Msg, zone *dns.Zone) *wire.Msg {
	q := req.Question[0]
	r := zone.Answer(dns.Question{Name: q.Name, Type: dns.Type(q.Qtype)})
	if r.NotOurs {
		return s.relay(ctx, req)
	}
	m := render(req, r)
	if r.Chase != "" {
		s.chase(m, req, r.Chase)
	}
	shuffle(m.Answer)
	return m
}

// status is a reply that carries a code only.
func status(req *wire.Msg, rcode int) *wire.Msg {
	m := new(wire.Msg)
	m.SetRcode(req, rcode)
	return m
}

// chaos answers the names by which servers tell who they are (RFC 4892).
func (s *Server) chaos(req *wire.Msg) *wire.Msg {
	q := req.Question[0]
	text := ""
	switch strings.ToLower(q.Name) {
	case "version.bind.", "version.server.":
		text = s.cfg.Version
	case "hostname.bind.", "id.server.":
		text = s.cfg.Hostname
	}
	if text == "" || q.Qtype != wire.TypeTXT {
		return status(req, wire.RcodeRefused)
	}
	m := status(req, wire.RcodeSuccess)
	m.Answer = []wire.RR{&wire.TXT{Hdr: wire.RR_Header{Name: q.Name, Rrtype: wire.TypeTXT, Class: wire.ClassCHAOS}, Txt: []string{text}}}
	return m
}

// relay asks upstream and passes what comes back.
func (s *Server) relay(ctx context.Context, req *wire.Msg) *wire.Msg {
	if m := s.forward.listed(req, req.Question[0].Name); m != nil {
		shuffle(m.Answer)
		return m
	}
	up, err := s.forward.ask(ctx, newAsk(req))
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errNoRoute):
		return status(req, wire.RcodeRefused)
	case err != nil:
		s.cfg.Log.Debug("dns: no answer from upstream", "question", req.Question[0].Name, "error", err)
		m := status(req, wire.RcodeServerFailure)
		m.RecursionAvailable = true
		return m
	}
	m := new(wire.Msg)
	m.SetRcode(req, up.Rcode)
	m.Authoritative, m.RecursionAvailable = up.Authoritative, true
	m.AuthenticatedData = up.AuthenticatedData
	m.Answer, m.Ns, m.Extra = up.Answer, up.Ns, withoutOPT(up.Extra)
	respell(m)
	shuffle(m.Answer)
	return m
}

// chase adds what upstream says of target. Whatever goes wrong, the CNAME stands.
func (s *Server) chase(m, req *wire.Msg, target string) {
	ctx, cancel := context.WithTimeout(context.Background(), chaseTimeout)
	defer cancel()
	if h := s.forward.listed(req, target); h != nil {
		m.Answer = append(m.Answer, h.Answer...)
		return
	}
	a := newAsk(req)
	a.name = target
	a.rd = true
	up, err := s.forward.ask(ctx, a)
	if err != nil {
		s.cfg.Log.Debug("dns: ExternalName not resolved", "question", req.Question[0].Name, "target", target, "error", err)
		return
	}
	m.Answer = append(m.Answer, up.Answer...)
	if up.Rcode == wire.RcodeNameError { // of the last name, RFC 6604 section 3
		m.Rcode, m.Ns = up.Rcode, up.Ns
	}
}
