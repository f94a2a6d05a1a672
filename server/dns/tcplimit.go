package dnsserver

import (
	"net"
	"net/netip"
	"sync"
)

// fairListener gives one client no more than a share of the connections a listener
// holds: without it one Pod that opens a thousand and says nothing leaves nobody else
// any. It stands in front of the total limit, which waits; a client over its share is
// hung up on.
type fairListener struct {
	net.Listener
	share int

	mu   sync.Mutex
	open map[netip.Addr]int
}

func newFairListener(l net.Listener, share int) *fairListener {
	return &fairListener{Listener: l, share: share, open: map[netip.Addr]int{}}
}

func (f *fairListener) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if f.enter(client.Addr()) {
			return &fairConn{Conn: c, leave: sync.OnceFunc(func() { f.leave(client.Addr()) })}, nil
		}
		c.Close()
	}
}

func (f *fairListener) enter(a netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[a] >= f.share {
		return false
	}
	f.open[a]++
	return true
}

func (f *fairListener) leave(a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[a]--; f.open[a] == 0 {
		delete(f.open, a)
	}
}

type fairConn struct {
	net.Conn
	leave func()
}

func (c *fairConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
