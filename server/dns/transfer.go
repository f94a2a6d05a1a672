package dnsserver

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// transferMessage is how many records of a transfer share a message: enough to spare
// headers, and far from what a message holds.
const transferMessage = 300

// transfer finds what a request for a whole zone gets: nil when raw is none, or one
// that is not allowed, which answer refuses.
func (s *Server) transfer(raw []byte, client netip.Addr) (*wire.Msg, iter.Seq[dns.Record]) {
	req := new(wire.Msg)
	zone := s.zone.Load()
	if zone == nil || req.Unpack(raw) != nil || len(req.Question) != 1 || req.Opcode != wire.OpcodeQuery || !zone.MayTransfer(client) {
		return nil, nil
	}
	q := req.Question[0]
	if q.Qclass != wire.ClassINET || q.Qtype != wire.TypeAXFR && q.Qtype != wire.TypeIXFR {
		return nil, nil
	}
	var serial *uint32
	if soa := soaOf(req); soa != nil && q.Qtype == wire.TypeIXFR {
		serial = &soa.Serial
	}
	return req, zone.Transfer(q.Name, serial)
}

// stream sends the records in messages of many.
func (t *tcpConn) stream(req *wire.Msg, records iter.Seq[dns.Record]) bool {
	var batch []wire.RR
	for r := range records {
		if batch = append(batch, record(r)); len(batch) == transferMessage {
			if !t.sendRecords(req, batch) {
				return false
			}
			batch = batch[:0]
		}
	}
	return len(batch) == 0 || t.sendRecords(req, batch)
}

func (t *tcpConn) sendRecords(req *wire.Msg, records []wire.RR) bool {
	m := status(req, wire.RcodeSuccess)
	m.Authoritative, m.Compress, m.Answer = true, true, records
	raw, err := m.Pack()
	if err != nil {
		t.server.cfg.Log.Debug("dns: zone not transferred", "to", t.conn.RemoteAddr(), "error", err)
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = append(binary.BigEndian.AppendUint16(t.out, uint16(len(raw))), raw...)
	return t.flush()
}
