package dnsserver

import (
	"sync"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// cache keeps upstream answers, positive ones and denials apart, so that neither can
// push the other out.
type cache struct {
	cfg      dns.CacheConfig
	metrics  *metrics
	mu       sync.Mutex
	success  map[ask]*entry
	denial   map[ask]*entry
	disabled bool
}

// entry is one answer kept. Its counts change under the cache's lock.
type entry struct {
	msg     *wire.Msg
	stored  time.Time
	expires time.Time
	hits    int       // in a row, as CacheConfig.PrefetchGap has it
	last    time.Time // of the hits
	soon    bool      // asked for anew already
	failed  time.Time // when it was asked for anew in vain
}

// recheck is how long after such a failure nobody is asked again (RFC 8767 section 5).
const recheck = 30 * time.Second

// kept is what the cache knows of a question.
type kept struct {
	msg *wire.Msg // nil for nothing
	// stale: past its end, for where nobody else answers. soon: to be asked for anew.
	// failed: it was asked for anew a moment ago, in vain.
	stale, soon, failed bool
}

func newCache(cfg dns.CacheConfig, m *metrics) *cache {
	return &cache{
		cfg: cfg, metrics: m, success: map[ask]*entry{}, denial: map[ask]*entry{},
		disabled: cfg.Success.MaxTTL <= 0 && cfg.Denial.MaxTTL <= 0,
	}
}

// get returns a copy with the time left as TTL.
func (c *cache) get(k ask, now time.Time) kept {
	if c.disabled {
		return kept{}
	}
	c.metrics.cacheRequests.Inc()
	c.mu.Lock()
	e, kind := c.success[k], "success"
	if d := c.denial[k]; d != nil && (e == nil || d.stored.After(e.stored)) {
		e, kind = d, "denial"
	}
	if e == nil || !now.Before(e.expires.Add(c.staleTime(e))) {
		c.mu.Unlock()
		c.metrics.cacheMiss.Inc()
		return kept{}
	}
	out := kept{stale: !now.Before(e.expires), soon: c.popular(e, now), failed: now.Sub(e.failed) < recheck}
	msg, expires, stored := e.msg, e.expires, e.stored
	c.mu.Unlock()
	left := expires.Sub(now)
	switch {
	case out.stale:
		left = 0
	case c.cfg.KeepTTL:
		left = expires.Sub(stored)
	}
	if !out.stale {
		c.metrics.cacheHits.WithLabelValues(kind).Inc()
	}
	out.msg = aged(msg, left)
	return out
}

// staleTime is how long e may be given past its end: failures never are.
func (c *cache) staleTime(e *entry) time.Duration {
	if e.msg.Rcode == wire.RcodeServerFailure {
		return 0
	}
	return c.cfg.ServeStale
}

// popular counts a hit and tells whether the answer is to be asked for anew. The caller
// holds mu.
func (c *cache) popular(e *entry, now time.Time) bool {
	if c.cfg.Prefetch <= 0 || e.soon || !now.Before(e.expires) {
		return false
	}
	if now.Sub(e.last) > c.cfg.PrefetchGap {
		e.hits = 0
	}
	e.hits++
	e.last = now
	share := e.expires.Sub(e.stored) * time.Duration(c.cfg.PrefetchShare) / 100
	e.soon = e.hits >= c.cfg.Prefetch && e.expires.Sub(now) <= share
	return e.soon
}

// failed lets an answer be asked for anew again before its end.
func (c *cache) failed(k ask, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range []*entry{c.success[k], c.denial[k]} {
		if e != nil {
			e.soon, e.failed = false, now
		}
	}
}

func (c *cache) drop(k ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.success, k)
	delete(c.denial, k)
}

// put keeps m as long as its records and the limits allow, and returns m as clients
// should see it.
func (c *cache) put(k ask, m *wire.Msg, now time.Time) *wire.Msg {
	ttl, denial := c.lifetime(m)
	failure := m.Rcode == wire.RcodeServerFailure
	if failure {
		c.failed(k, now)
	}
	if ttl <= 0 || !c.cfg.Keeps(k.name, denial) {
		if !failure && !m.Truncated && !c.disabled { // true now, so that what was kept is not
			c.drop(k)
		}
		return m
	}
	into, limits, kind := c.success, c.cfg.Success, "success"
	if denial {
		into, limits, kind = c.denial, c.cfg.Denial, "denial"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if failure && !c.better(k, now) {
		return m
	}
	e := &entry{msg: m, stored: now, expires: now.Add(ttl)}
	if old := into[k]; old != nil {
		e.hits, e.last = old.hits, old.last
	}
	for old := range into { // in random order: a full cache loses any of its entries
		if len(into) < limits.Capacity || into[k] != nil {
			break
		}
		delete(into, old)
		c.metrics.cacheEvictions.WithLabelValues(kind).Inc()
	}
	if limits.Capacity > 0 {
		into[k] = e
	}
	c.metrics.cacheEntries.WithLabelValues(kind).Set(float64(len(into)))
	return aged(m, ttl)
}

// better tells whether a failure is worth keeping: not while there is something older to
// give in its place.
func (c *cache) better(k ask, now time.Time) bool {
	for _, old := range []*entry{c.success[k], c.denial[k]} {
		if old != nil && now.Before(old.expires.Add(c.staleTime(old))) {
			return false
		}
	}
	return true
}

// lifetime is how long m may be kept (RFC 2308), 0 for not at all, and whether it is a
// denial.
func (c *cache) lifetime(m *wire.Msg) (time.Duration, bool) {
	switch {
	case c.disabled || m.Truncated:
		return 0, false
	case m.Rcode == wire.RcodeServerFailure:
		return c.cfg.ServFail, true
	case m.Rcode == wire.RcodeNameError, m.Rcode == wire.RcodeSuccess && denies(m):
		soa := soaOf(m)
		if soa == nil {
			return 0, true
		}
		return clamp(min(soa.Hdr.Ttl, soa.Minttl), c.cfg.Denial), true
	case m.Rcode == wire.RcodeSuccess:
		return clamp(lowestTTL(m), c.cfg.Success), false
	}
	return 0, false
}

// denies tells whether m has nothing of the type asked for.
func denies(m *wire.Msg) bool {
	asked := m.Question[0].Qtype
	for _, rr := range m.Answer {
		if t := rr.Header().Rrtype; t == asked || asked == wire.TypeANY {
			return false
		}
	}
	return true
}

func soaOf(m *wire.Msg) *wire.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*wire.SOA); ok {
			return soa
		}
	}
	return nil
}

func clamp(ttl uint32, l dns.CacheLimits) time.Duration {
	if ttl == 0 {
		return 0 // meant for this question only
	}
	return min(max(time.Duration(ttl)*time.Second, l.MinTTL), l.MaxTTL)
}

func lowestTTL(m *wire.Msg) uint32 {
	lowest := ^uint32(0)
	for _, section := range [][]wire.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if rr.Header().Rrtype != wire.TypeOPT {
				lowest = min(lowest, rr.Header().Ttl)
			}
		}
	}
	if lowest == ^uint32(0) {
		return 0
	}
	return lowest
}

// aged copies m with no TTL above left.
func aged(m *wire.Msg, left time.Duration) *wire.Msg {
	m = m.Copy()
	seconds := uint32((left + time.Second - 1) / time.Second)
	for _, section := range [][]wire.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != wire.TypeOPT {
				h.Ttl = min(h.Ttl, seconds)
			}
		}
	}
	return m
}
