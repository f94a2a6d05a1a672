package dnsserver

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
)

// moody answers A with a TTL of one second, until it is told to answer otherwise.
func moody(t *testing.T, asked *atomic.Int64, mood *atomic.Int64) wire.HandlerFunc {
	return func(w wire.ResponseWriter, r *wire.Msg) {
		if r.Question[0].Qtype != wire.TypeA {
			_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeNameError))
			return
		}
		asked.Add(1)
		m := new(wire.Msg).SetReply(r)
		switch mood.Load() {
		case silent:
			return
		case slow:
			time.Sleep(400 * time.Millisecond)
		case failing:
			m.Rcode = wire.RcodeServerFailure
			_ = w.WriteMsg(m)
			return
		}
		m.Answer = rr(t, "www.example.com. 1 IN A 192.0.2.80")
		_ = w.WriteMsg(m)
	}
}

const (
	silent = iota + 1
	slow
	failing
)

func shortCache(c dns.CacheConfig) dns.CacheConfig {
	limits := dns.CacheLimits{Capacity: 100, MaxTTL: time.Minute}
	c.Success, c.Denial, c.ServFail = limits, limits, time.Second
	return c
}

func ttlOf(t *testing.T, m *wire.Msg) int {
	t.Helper()
	if m.Rcode != wire.RcodeSuccess || len(m.Answer) != 1 {
		t.Fatalf("got %v", m)
	}
	return int(m.Answer[0].Header().Ttl)
}

// TestServeStale: past its end an answer is given, with TTL 0, where the upstream fails or
// says nothing; not where it answers.
func TestServeStale(t *testing.T) {
	for what, tries := range map[int64]int64{failing: 1, silent: 2} {
		var asked, mood atomic.Int64
		cfg := forwardTo(upstreamServer(t, moody(t, &asked, &mood)))
		cfg.Routes[0].Cache = shortCache(dns.CacheConfig{ServeStale: time.Hour})
		_, addr := serve(t, buildZone(t, objects), Config{Forward: cfg, UpstreamTimeout: 300 * time.Millisecond})
		q := query{name: "www.example.com.", qtype: wire.TypeA}
		ttlOf(t, exchange(t, addr, q))
		mood.Store(what)
		time.Sleep(1100 * time.Millisecond)
		for range 2 { // the failure must not take its place
			if ttl := ttlOf(t, exchange(t, addr, q)); ttl != 0 {
				t.Errorf("a stale answer has TTL %d", ttl)
			}
		}
		if n := asked.Load(); n != 1+tries { // the second took the first one's word for it
			t.Errorf("a failing upstream was asked %d times", n)
		}
	}
}

// TestStaleAtOnce: the client has the old answer before the upstream says a word, and the
// next one the new.
func TestStaleAtOnce(t *testing.T) {
	var asked, mood atomic.Int64
	cfg := forwardTo(upstreamServer(t, moody(t, &asked, &mood)))
	cfg.Routes[0].Cache = shortCache(dns.CacheConfig{ServeStale: time.Hour, StaleAtOnce: true})
	_, addr := serve(t, buildZone(t, objects), Config{Forward: cfg})
	q := query{name: "www.example.com.", qtype: wire.TypeA}
	exchange(t, addr, q)
	mood.Store(slow)
	time.Sleep(1100 * time.Millisecond)
	if ttl := ttlOf(t, exchange(t, addr, q)); ttl != 0 {
		t.Errorf("TTL %d", ttl)
	}
	time.Sleep(600 * time.Millisecond)
	if ttl := ttlOf(t, exchange(t, addr, q)); ttl != 1 || asked.Load() != 2 {
		t.Errorf("TTL %d after %d questions", ttl, asked.Load())
	}
}

// TestPrefetch: an answer asked for often is asked for again before it ends, once.
func TestPrefetch(t *testing.T) {
	c := newCache(shortCache(dns.CacheConfig{Prefetch: 3, PrefetchGap: time.Minute, PrefetchShare: 10}), newMetrics(nil, nil, ""))
	m := new(wire.Msg)
	m.SetQuestion("a.test.", wire.TypeA)
	m.Answer = rr(t, "a.test. 60 IN A 192.0.2.1")
	k, now := ask{name: "a.test.", qtype: wire.TypeA}, time.Unix(1000, 0)
	c.put(k, m, now)
	at := func(seconds int) bool { return c.get(k, now.Add(time.Duration(seconds)*time.Second)).soon }
	for _, step := range []struct {
		second int
		soon   bool
	}{{10, false}, {20, false}, {30, false}, {53, false}, {55, true}, {56, false}} {
		if got := at(step.second); got != step.soon {
			t.Errorf("second %d: %v", step.second, got)
		}
	}
}

// TestFailoverCodes: a response code of the list is not the last word while there are others.
func TestFailoverCodes(t *testing.T) {
	var asked, mood, other, fine atomic.Int64
	mood.Store(failing)
	cfg := forwardTo(upstreamServer(t, moody(t, &asked, &mood)), upstreamServer(t, moody(t, &other, &fine)))
	cfg.Routes[0].Cache = dns.CacheConfig{}
	cfg.Routes[0].Failover = []dns.Rcode{dns.ServFail}
	_, addr := serve(t, buildZone(t, objects), Config{Forward: cfg})
	q := query{name: "www.example.com.", qtype: wire.TypeA}
	ttlOf(t, exchange(t, addr, q))
	fine.Store(failing)
	if m := exchange(t, addr, q); m.Rcode != wire.RcodeServerFailure || asked.Load() != 2 || other.Load() != 2 {
		t.Errorf("got %v after %d and %d questions", m, asked.Load(), other.Load())
	}
}

// TestPatience: once an upstream's time is known it is not waited for much longer than
// that while there is another, and being slow alone does not mark it down.
func TestPatience(t *testing.T) {
	var asked, mood, other, fine atomic.Int64
	cfg := forwardTo(upstreamServer(t, moody(t, &asked, &mood)), upstreamServer(t, moody(t, &other, &fine)))
	cfg.Routes[0].Cache = dns.CacheConfig{}
	s, addr := serve(t, buildZone(t, objects), Config{Forward: cfg, UpstreamTimeout: 3 * time.Second})
	q := query{name: "www.example.com.", qtype: wire.TypeA}
	exchange(t, addr, q)
	mood.Store(slow)
	for range 3 {
		ttlOf(t, exchange(t, addr, q))
	}
	first := (*s.forward.routes.Load())[0].upstreams[0]
	if asked.Load() != 4 || other.Load() == 0 || first.down.Load() {
		t.Errorf("asked %d and %d times, down %v", asked.Load(), other.Load(), first.down.Load())
	}
}

// TestTruthReplacesStale: what may not be kept is still the truth; what was kept before it
// is given no more.
func TestTruthReplacesStale(t *testing.T) {
	c := newCache(shortCache(dns.CacheConfig{ServeStale: time.Hour, StaleAtOnce: true}), newMetrics(nil, nil, ""))
	k, now := ask{name: "a.test.", qtype: wire.TypeA}, time.Unix(1000, 0)
	reply := func(rcode int, records ...string) *wire.Msg {
		m := new(wire.Msg).SetQuestion("a.test.", wire.TypeA)
		m.Rcode, m.Answer = rcode, rr(t, records...)
		return m
	}
	for what, truth := range map[string]*wire.Msg{"TTL 0": reply(0, "a.test. 0 IN A 192.0.2.2"), "no SOA": reply(wire.RcodeNameError)} {
		c.put(k, reply(0, "a.test. 1 IN A 192.0.2.1"), now)
		if c.get(k, now.Add(time.Minute)).msg == nil {
			t.Fatal("nothing stale is kept")
		}
		c.put(k, truth, now.Add(time.Minute))
		if got := c.get(k, now.Add(time.Minute)); got.msg != nil {
			t.Errorf("%s: still %v", what, got.msg)
		}
	}
	// A failure is no truth, however short it may be kept.
	c.cfg.ServFail = 0
	c.put(k, reply(0, "a.test. 1 IN A 192.0.2.1"), now)
	c.put(k, reply(wire.RcodeServerFailure), now.Add(time.Minute))
	if got := c.get(k, now.Add(time.Minute)); got.msg == nil || !got.failed {
		t.Errorf("after a failure %+v", got)
	}
}

// TestEDNSAfterOddQuestion: an upstream that does not understand one question is asked the
// others with EDNS as before.
func TestEDNSAfterOddQuestion(t *testing.T) {
	var with, without atomic.Int64
	up := upstreamServer(t, func(w wire.ResponseWriter, r *wire.Msg) {
		if r.Question[0].Qtype == wire.TypeLOC {
			_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeNotImplemented))
			return
		}
		if r.IsEdns0() != nil {
			with.Add(1)
		} else {
			without.Add(1)
		}
		_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeNameError))
	})
	_, addr := serve(t, buildZone(t, objects), Config{Forward: forwardTo(up)})
	if m := exchange(t, addr, query{name: "odd.example.", qtype: wire.TypeLOC}); m.Rcode != wire.RcodeNotImplemented {
		t.Errorf("got %v", m)
	}
	before := with.Load()
	exchange(t, addr, query{name: "plain.example.", qtype: wire.TypeA})
	if with.Load() != before+1 || without.Load() != 0 {
		t.Errorf("asked %d times with EDNS, %d without", with.Load()-before, without.Load())
	}
}

// TestTCPOnlyRecovers: an upstream that is asked over TCP only is probed over TCP.
func TestTCPOnlyRecovers(t *testing.T) {
	addr := freePort(t, "127.0.53.21")
	cfg := forwardTo(addr, upstreamServer(t, func(w wire.ResponseWriter, r *wire.Msg) {
		_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeNameError))
	}))
	cfg.Routes[0].ForceTCP, cfg.Routes[0].MaxFails, cfg.Routes[0].Cache = true, 1, dns.CacheConfig{}
	s, at := serve(t, buildZone(t, objects), Config{Forward: cfg, UpstreamTimeout: 300 * time.Millisecond})
	exchange(t, at, query{name: "a.example.", qtype: wire.TypeA})
	u := (*s.forward.routes.Load())[0].upstreams[0]
	if !u.down.Load() {
		t.Fatal("an upstream that is not there is not down")
	}
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	srv := &wire.Server{Listener: l, Handler: wire.HandlerFunc(func(w wire.ResponseWriter, r *wire.Msg) {
		_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeNameError))
	})}
	go srv.ActivateAndServe() //nolint:errcheck // ends with the test
	t.Cleanup(func() { _ = srv.Shutdown() })
	for range 100 {
		if !u.down.Load() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("it answers again, and stays down")
}
