// Package resolver stands for the resolver of the site a cluster is in. In come
// a file of names as hosts(5) has them, read again for every query, and DNS
// queries by UDP and TCP; out go answers, NXDOMAIN for every name that is not
// in the file. It never asks anybody else.
package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"fairway/lab/netspace"

	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/klog/v2"
)

const (
	port    = 53
	udpSize = 1232             // what we take and send by UDP (DNS flag day 2020)
	idle    = 10 * time.Second // how long a TCP connection may be silent
)

// Resolver answers from a file.
type Resolver struct{ File string }

// Serve answers on port 53 of addrs in network namespace ns until ctx ends.
func (r Resolver) Serve(ctx context.Context, ns *os.File, addrs []netip.Addr) error {
	var close []io.Closer
	defer func() {
		for _, c := range close {
			c.Close()
		}
	}()
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, port).String()
		var packets net.PacketConn
		var streams net.Listener
		err := netspace.Do(ns, func() (err error) {
			if packets, err = net.ListenPacket("udp", at); err != nil {
				return err
			}
			close = append(close, packets)
			streams, err = net.Listen("tcp", at)
			return err
		})
		if err != nil {
			return fmt.Errorf("resolver: %w", err)
		}
		close = append(close, streams)
		go r.answerPackets(packets)
		go r.acceptStreams(streams)
	}
	<-ctx.Done()
	return nil
}

func (r Resolver) answerPackets(c net.PacketConn) {
	buf := make([]byte, udpSize)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if reply := r.Reply(buf[:n]); reply != nil {
			_, _ = c.WriteTo(reply, from) // one that is lost is asked for again
		}
	}
}

func (r Resolver) acceptStreams(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go r.answerStream(c)
		}
	}
}

// answerStream reads messages with their length in front (RFC 1035 section
// 4.2.2) until the peer has no more.
func (r Resolver) answerStream(c net.Conn) {
	defer c.Close()
	for {
		_ = c.SetDeadline(time.Now().Add(idle))
		var size uint16
		if binary.Read(c, binary.BigEndian, &size) != nil {
			return
		}
		query := make([]byte, size)
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		reply := r.Reply(query)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// Reply answers one message; nil for what is no query.
func (r Resolver) Reply(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired,
		RecursionAvailable: true, RCode: dnsmessage.RCodeFormatError}}
	q, err := p.Question()
	if err == nil {
		m.Questions = []dnsmessage.Question{q}
		m.Answers, m.RCode = r.table().Answer(q)
	}
	if err == nil && p.SkipAllQuestions() == nil {
		if opt := edns(&p); opt != nil {
			m.Additionals = []dnsmessage.Resource{*opt}
		}
	}
	reply, err := m.Pack()
	if err != nil {
		klog.ErrorS(err, "Resolver", "question", q)
		return nil
	}
	return reply
}

// edns returns the OPT record for the reply to a query that has one (RFC 6891
// section 7).
func edns(p *dnsmessage.Parser) *dnsmessage.Resource {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return nil
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return nil
		}
		if h.Type == dnsmessage.TypeOPT {
			var opt dnsmessage.ResourceHeader
			if opt.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false) != nil {
				return nil
			}
			return &dnsmessage.Resource{Header: opt, Body: &dnsmessage.OPTResource{}}
		}
		if p.SkipAdditional() != nil {
			return nil
		}
	}
}

func (r Resolver) table() Table {
	raw, err := os.ReadFile(r.File)
	if err != nil {
		klog.ErrorS(err, "Resolver")
		return Table{}
	}
	t, bad := Parse(string(raw))
	for _, line := range bad {
		klog.InfoS("Resolver", "file", r.File, "problem", line)
	}
	return t
}
