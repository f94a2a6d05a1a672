package stream

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// maxClients is how many clients a group remembers; one beyond is served but not
// remembered.
const maxClients = 65536

// clients remembers which target each client was sent to (session affinity).
type clients struct {
	mu    sync.Mutex
	at    map[netip.Addr]remembered
	swept time.Time
}

// sweepEvery is how often a full table is looked through for what has run out.
const sweepEvery = time.Second

type remembered struct {
	target netip.AddrPort
	until  time.Time
}

func newClients() *clients { return &clients{at: map[netip.Addr]remembered{}} }

func (c *clients) find(client netip.Addr, now time.Time) (netip.AddrPort, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.at[client]
	return r.target, ok && now.Before(r.until)
}

func (c *clients) learn(client netip.Addr, target netip.AddrPort, now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.at[client]; !known && len(c.at) >= maxClients {
		if now.Sub(c.swept) < sweepEvery {
			return
		}
		c.swept = now
		maps.DeleteFunc(c.at, func(_ netip.Addr, r remembered) bool { return !now.Before(r.until) })
		if len(c.at) >= maxClients {
			return
		}
	}
	c.at[client] = remembered{target, until}
}

// forget makes a client choose anew if target is what it was sent to.
func (c *clients) forget(client netip.Addr, target netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[client].target == target {
		delete(c.at, client)
	}
}
