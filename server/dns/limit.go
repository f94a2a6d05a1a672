package dnsserver

import (
	"hash/maphash"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// largeReply is the size above which a UDP reply is worth an attacker's while, in
// bytes: what every client could be sent before EDNS is no use for amplification.
const largeReply = 512

// limiter gives each client so many events a second, and as many at once. It has a
// fixed number of buckets and no names on them: clients that meet in one share it, which
// is rare, cannot be brought about without knowing the seed, and never gives more.
type limiter struct {
	perSecond int
	seed      maphash.Seed
	mu        sync.Mutex
	buckets   []bucket
}

// bucket was at spent events at a time; they are forgotten at the rate.
type bucket struct {
	spent float32
	at    uint32 // milliseconds
}

const bucketCount = 8192

// newLimiter returns nil, which limits nobody, for a rate of 0 or less.
func newLimiter(perSecond int) *limiter {
	if perSecond <= 0 {
		return nil
	}
	return &limiter{perSecond: perSecond, seed: maphash.MakeSeed(), buckets: make([]bucket, bucketCount)}
}

// allow takes one event of a client's; now is any time scale's milliseconds.
func (l *limiter) allow(client []byte, now uint32) bool {
	if l == nil {
		return true
	}
	i := maphash.Bytes(l.seed, client) % bucketCount
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.buckets[i]
	if b.spent == 0 {
		b.at = now
	}
	if passed := int32(now - b.at); passed > 0 {
		b.spent = max(0, b.spent-float32(passed)*float32(l.perSecond)/1000)
		b.at = now
	}
	if b.spent >= float32(l.perSecond) {
		return false
	}
	b.spent++
	return true
}

func milliseconds(t time.Time) uint32 { return uint32(t.UnixMilli()) }

// clientOf is what a client is known by: its IPv4 address, or the half of an IPv6
// address that it cannot choose itself.
func clientOf(a *unix.RawSockaddrInet6) []byte {
	if a.Family == unix.AF_INET {
		return (*unix.RawSockaddrInet4)(unsafe.Pointer(a)).Addr[:]
	}
	return a.Addr[:8]
}
