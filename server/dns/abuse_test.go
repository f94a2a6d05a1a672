package dnsserver

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"
)

// from asks from a source address, and reads what comes within a second.
func from(t *testing.T, source string, to netip.AddrPort, raw []byte) *wire.Msg {
	t.Helper()
	if got := burst(t, source, to, raw, 1); len(got) > 0 {
		return got[0]
	}
	return nil
}

// burst asks n times at once.
func burst(t *testing.T, source string, to netip.AddrPort, raw []byte, n int) []*wire.Msg {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range n {
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
	}
	var got []*wire.Msg
	for buf := make([]byte, 65536); len(got) < n; {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		k, err := c.Read(buf)
		if err != nil {
			break
		}
		m := new(wire.Msg)
		if err := m.Unpack(buf[:k]); err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	return got
}

// TestLargeReplies: who asks for large replies again and again is told to come over TCP,
// where all of it is; others are served as before.
func TestLargeReplies(t *testing.T) {
	_, addr := serve(t, buildZone(t, big(200)), Config{LargePerSecond: 5})
	q := new(wire.Msg)
	q.SetQuestion("big.demo01.svc.cluster.local.", wire.TypeA)
	q.SetEdns0(4096, false)
	raw, _ := q.Pack()
	whole, cut := 0, 0
	for _, m := range burst(t, "127.0.0.2", addr, raw, 40) {
		switch {
		case len(m.Answer) == 200:
			whole++
		case m.Truncated && len(m.Answer) == 0 && m.IsEdns0() != nil && m.Id == q.Id && m.Question[0] == q.Question[0]:
			cut++
		default:
			t.Fatalf("got %v", m)
		}
	}
	if whole < 5 || whole > 25 || cut < 10 {
		t.Errorf("%d whole, %d cut of 40", whole, cut)
	}
	if m := from(t, "127.0.0.3", addr, raw); m == nil || len(m.Answer) != 200 {
		t.Errorf("another client got %v", m)
	}
	if m := exchange(t, addr, query{name: "big.demo01.svc.cluster.local", qtype: wire.TypeA, net: "tcp"}); len(m.Answer) != 200 {
		t.Errorf("over TCP: %d answers", len(m.Answer))
	}
}

func TestQueriesPerSecond(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{QueriesPerSecond: 3})
	q := new(wire.Msg)
	q.SetQuestion("nginx-svc.default.svc.cluster.local.", wire.TypeA)
	raw, _ := q.Pack()
	if answered := len(burst(t, "127.0.0.2", addr, raw, 60)); answered < 3 || answered > 30 {
		t.Errorf("%d answered", answered)
	}
	if from(t, "127.0.0.3", addr, raw) == nil {
		t.Error("another client is not answered")
	}
}

// TestLimiter: a client gets its rate, in bursts no longer than a second's.
func TestLimiter(t *testing.T) {
	l := newLimiter(100)
	got := 0
	for now := range uint32(2000) { // once a millisecond for two seconds, and some more
		for range 3 {
			if l.allow([]byte{10, 0, 0, 1}, now+4294966296) { // the clock runs over on the way
				got++
			}
		}
	}
	if got < 290 || got > 310 {
		t.Errorf("%d events in two seconds, want the burst of 100 and 200", got)
	}
	if !newLimiter(0).allow(nil, 0) {
		t.Error("no limit limits")
	}
}

// TestSlowTCP sends a query byte by byte, never whole: the connection ends in time.
func TestSlowTCP(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{TCPIdle: 300 * time.Millisecond})
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	for time.Since(start) < 5*time.Second {
		if _, err = c.Write([]byte{0}); err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err == nil {
		t.Error("a client that dribbles keeps its connection")
	}
}

// TestDeafTCP asks and asks and never reads: the connection ends.
func TestDeafTCP(t *testing.T) {
	s, addr := serve(t, buildZone(t, big(4000)), Config{})
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetReadBuffer(4096)
	q := new(wire.Msg)
	q.SetQuestion("big.demo01.svc.cluster.local.", wire.TypeA)
	raw, _ := q.Pack()
	raw = append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...)
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for err == nil {
		_, err = c.Write(raw)
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("a client that never reads keeps its connection")
	}
	if !s.Ready() {
		t.Error("the server is not ready")
	}
}

// TestLargest asks for more than a message holds: over TCP as much as fits comes, with
// TC; a name of 255 octets is a name.
func TestLargest(t *testing.T) {
	_, addr := serve(t, buildZone(t, big(5000)), Config{})
	m := exchange(t, addr, query{name: "big.demo01.svc.cluster.local", qtype: wire.TypeA, net: "tcp"})
	if !m.Truncated || len(m.Answer) < 4080 || len(m.Answer) > 4096 {
		t.Errorf("%d answers, TC %v", len(m.Answer), m.Truncated)
	}
	suffix := ".cluster.local."
	name := strings.Repeat(strings.Repeat("x", 62)+".", 3) + strings.Repeat("y", 255-2-3*63-len(suffix)) + suffix
	for _, network := range []string{"udp", "tcp"} {
		if m := exchange(t, addr, query{name: name, qtype: wire.TypeA, net: network}); m.Rcode != wire.RcodeNameError || m.Question[0].Name != name {
			t.Errorf("%d octets over %s: %v", len(name), network, m)
		}
	}
}

// TestOddNames sends names no library writes: loops of compression, cut labels, names
// that are too long. A header says what is wrong, or nothing comes; the server lives.
func TestOddNames(t *testing.T) {
	s, addr := serve(t, buildZone(t, objects), Config{})
	head := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	for _, name := range []string{"\xc0\x0c", "\x01a\xc0\x0c", "\x01a\xc0\x0e\xc0\x0c", "\x3f" + strings.Repeat("x", 20), strings.Repeat("\x3f"+strings.Repeat("x", 63), 5) + "\x00", "\x80a", "\x40a"} {
		raw := []byte(head + name + "\x00\x01\x00\x01")
		if m := from(t, "127.0.0.2", addr, raw); m != nil && m.Rcode != wire.RcodeFormatError {
			t.Errorf("%q: %v", name, m)
		}
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...))
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		b, _ := io.ReadAll(io.LimitReader(c, 6))
		if len(b) == 6 && b[5]&15 != wire.RcodeFormatError {
			t.Errorf("%q over TCP: % x", name, b)
		}
		c.Close()
	}
	if !s.Ready() || s.metrics.malformed.Load() == 0 {
		t.Error("not ready, or nothing counted")
	}
}
