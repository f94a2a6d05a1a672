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
	success  map[ask]entry
	denial   map[ask]entry
	disabled bool
}

type entry struct {
	msg     *wire.Msg
	expires time.Time
}

func newCache(cfg dns.CacheConfig, m *metrics) *cache {
	return &cache{
		cfg: cfg, metrics: m, success: map[ask]entry{}, denial: map[ask]entry{},
		disabled: cfg.Success.MaxTTL <= 0 && cfg.Denial.MaxTTL <= 0,
	}
}

// get returns a copy with the time left as TTL, nil when nothing is kept.
func (c *cache) get(k ask, now time.Time) *wire.Msg {
	if c.disabled {
		return nil
	}
	c.mu.Lock()
	e, ok := c.success[k]
	kind := "success"
	if !ok || !now.Before(e.expires) {
		e, ok = c.denial[k]
		kind = "denial"
	}
	c.mu.Unlock()
	if !ok || !now.Before(e.expires) {
		c.metrics.cacheMiss.Inc()
		return nil
	}
	c.metrics.cacheHits.WithLabelValues(kind).Inc()
	return aged(e.msg, e.expires.Sub(now))
}

// put keeps m as long as its records and the limits allow, and returns m as clients
// should see it.
func (c *cache) put(k ask, m *wire.Msg, now time.Time) *wire.Msg {
	ttl, denial := c.lifetime(m)
	if ttl <= 0 {
		return m
	}
	into, limits, kind := c.success, c.cfg.Success, "success"
	if denial {
		into, limits, kind = c.denial, c.cfg.Denial, "denial"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for old := range into { // in random order: a full cache loses any of its entries
		if len(into) < limits.Capacity {
			break
		}
		delete(into, old)
	}
	if limits.Capacity > 0 {
		into[k] = entry{m, now.Add(ttl)}
	}
	c.metrics.cacheEntries.WithLabelValues(kind).Set(float64(len(into)))
	return aged(m, ttl)
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
