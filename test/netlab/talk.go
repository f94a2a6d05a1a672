package netlab

import (
	"net"
	"strings"
	"testing"
	"time"
)

// Talkers are UDP clients of one host, each with a socket of its own all the time.
type Talkers struct {
	t     *testing.T
	conns []net.Conn
}

// Talk opens n sockets to an address; they are closed with the test.
func (h *Host) Talk(t *testing.T, n int, to string) *Talkers {
	t.Helper()
	k := &Talkers{t: t}
	for range n {
		err := h.Do(func() error {
			c, err := net.Dial("udp", to)
			if err == nil {
				k.conns = append(k.conns, c)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, c := range k.conns {
			_ = c.Close()
		}
	})
	return k
}

// Heard sends once from every socket and tells which server answered each; empty is
// silence or a rejection.
func (k *Talkers) Heard() []string {
	out := make([]string, len(k.conns))
	for i, c := range k.conns {
		_ = c.SetDeadline(time.Now().Add(250 * time.Millisecond))
		buf := make([]byte, 128)
		if _, err := c.Write([]byte("?")); err != nil {
			continue
		}
		if n, err := c.Read(buf); err == nil {
			out[i] = strings.Fields(string(buf[:n]))[0]
		}
	}
	return out
}

// Until waits until every socket hears want ("" is nobody), and fails the test when that
// does not come to be.
func (k *Talkers) Until(when, want string) {
	k.t.Helper()
	var got []string
	for range 40 {
		got = k.Heard()
		same := true
		for _, g := range got {
			same = same && g == want
		}
		if same {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	k.t.Fatalf("%s: the sockets hear %q, want %q everywhere", when, got, want)
}
