package dnsserver

import (
	"net"
	"testing"
	"time"

	wire "github.com/miekg/dns"
)

// TestTCPShare: a client that opens every connection it can keeps only its share, and
// others are answered meanwhile.
func TestTCPShare(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{MaxTCP: 16})
	for range 40 {
		c, err := net.DialTimeout("tcp", addr.String(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte{0}) //nolint:errcheck // half a length, and then silence
	}
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Second}
	c := &wire.Client{Net: "tcp", Dialer: other, Timeout: time.Second}
	q := new(wire.Msg)
	q.SetQuestion("cluster.local.", wire.TypeSOA)
	start := time.Now()
	if _, _, err := c.Exchange(q, addr.String()); err != nil {
		t.Fatalf("another client: %v after %v", err, time.Since(start))
	}
}
