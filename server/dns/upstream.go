package dnsserver

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"
)

// upstream is one server asked for names that are not ours.
type upstream struct {
	addr     netip.AddrPort
	interval time.Duration // of probes while it fails
	probe    string        // the name whose query, coming in here, shows a loop

	fails     atomic.Int32
	most      atomic.Int32 // failures that mark it down; 0 for never
	down      atomic.Bool
	probing   atomic.Bool
	looping   atomic.Bool
	seen      atomic.Bool // its probe came in here since it was sent
	tcp       atomic.Bool // every route asks it over TCP only
	unchecked atomic.Bool // not yet probed for a loop
	plain     atomic.Bool // does not understand EDNS
	dropped   atomic.Bool // no route uses it any more
	// rtt is how long its answers take, smoothed, in nanoseconds; 0 until the first.
	rtt atomic.Int64
}

// leastPatience is the shortest time an upstream is given while there are others.
const leastPatience = 200 * time.Millisecond

// patience is how long u is waited for: all the time there is when it is the last hope,
// else some times what its answers take, so that a dead one costs its clients little.
func (f *forwarder) patience(u *upstream, last bool) time.Duration {
	rtt := time.Duration(u.rtt.Load())
	if last || rtt == 0 {
		return f.timeout
	}
	return min(max(4*rtt, leastPatience), f.timeout)
}

// took notes how long an answer took, or that none came in time.
func (u *upstream) took(d time.Duration, answered bool) {
	old := time.Duration(u.rtt.Load())
	switch {
	case !answered && old == 0:
		return
	case !answered:
		d = 2 * old
	case old > 0:
		d = (7*old + d) / 8
	}
	u.rtt.Store(int64(max(d, time.Microsecond)))
}

// exchange asks once: over UDP, then over TCP when the answer was cut.
func (f *forwarder) exchange(ctx context.Context, u *upstream, a ask, tcp bool, patience time.Duration) (*wire.Msg, error) {
	start := time.Now()
	edns := !u.plain.Load()
	m, err := f.roundTrip(ctx, u, a, tcp, edns, patience)
	u.took(time.Since(start), err == nil)
	if err == nil && edns && (m.Rcode == wire.RcodeFormatError || m.Rcode == wire.RcodeNotImplemented) { // RFC 6891 section 7
		code := m.Rcode
		edns = false
		m, err = f.roundTrip(ctx, u, a, tcp, edns, patience)
		if err == nil && m.Rcode != code { // else it was the question that it did not understand
			u.plain.Store(true)
		}
	}
	if err != nil || !m.Truncated || tcp {
		return m, err
	}
	if whole, err := f.roundTrip(ctx, u, a, true, edns, f.timeout); err == nil {
		return whole, nil
	}
	return m, nil // the client sees TC and may try by itself
}

func (f *forwarder) roundTrip(ctx context.Context, u *upstream, a ask, tcp, edns bool, patience time.Duration) (*wire.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q := new(wire.Msg)
	q.SetQuestion(a.name, a.qtype)
	q.RecursionDesired, q.CheckingDisabled = a.rd, a.cd
	if edns {
		q.SetEdns0(ownSize, a.do)
	}
	c := wire.Client{Net: "udp", Timeout: patience}
	if tcp {
		c.Net = "tcp"
	}
	start := time.Now()
	m, _, err := c.ExchangeContext(ctx, q, u.addr.String())
	if err == nil && !echoes(m, q) {
		err = errors.New("the reply is to another question")
	}
	f.metrics.upstream(u.addr, m, err, time.Since(start))
	if err != nil {
		return nil, err
	}
	return m, nil
}

// echoes tells whether m repeats the question of q (RFC 5452 section 3).
func echoes(m, q *wire.Msg) bool {
	if !m.Response {
		return false
	}
	if len(m.Question) == 0 { // some servers send bare errors; what names there are is none of these
		return m.Rcode != wire.RcodeSuccess && m.Rcode != wire.RcodeNameError
	}
	a, b := m.Question[0], q.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// run probes failing upstreams, reads resolv.conf again and looks for loops until ctx
// ends.
func (f *forwarder) run(ctx context.Context) {
	reload := time.NewTicker(reloadInterval)
	defer reload.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-f.failed:
			go f.recover(ctx, u)
		case <-f.fresh:
			f.checkLoops(ctx)
		case <-reload.C:
			f.reload()
			f.checkLoops(ctx)
		}
	}
}

// recover probes u until it answers anything.
func (f *forwarder) recover(ctx context.Context, u *upstream) {
	tick := time.NewTicker(u.interval)
	defer tick.Stop()
	for !u.dropped.Load() {
		if _, err := f.roundTrip(ctx, u, ask{name: ".", qtype: wire.TypeNS}, u.tcp.Load(), !u.plain.Load(), f.timeout); err == nil {
			u.probing.Store(false) // first: who fails from now on starts another
			f.works(u)
			return
		}
		f.metrics.probeFailed(u.addr)
		f.count(u)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// works notes that an upstream has answered.
func (f *forwarder) works(u *upstream) {
	u.fails.Store(0)
	if u.down.Load() && u.down.Swap(false) {
		f.log.Info("dns: upstream answers again", "upstream", u.addr)
	}
}

// checkLoops probes every upstream that is new or was found to lead back here.
func (f *forwarder) checkLoops(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.upstreams {
		if u.unchecked.Swap(false) || u.looping.Load() || f.own(u.addr) {
			go f.checkLoop(ctx, u)
		}
	}
}

// checkLoop sends a query for a name nobody else knows. If it comes in here, sawProbe
// marks the upstream; if it does not, a mark from before goes.
func (f *forwarder) checkLoop(ctx context.Context, u *upstream) {
	if f.own(u.addr) {
		f.markLoop(u)
		return
	}
	u.seen.Store(false)
	_, err := f.roundTrip(ctx, u, ask{name: u.probe, qtype: wire.TypeHINFO, rd: true}, u.tcp.Load(), !u.plain.Load(), f.timeout)
	switch {
	case u.seen.Load(): // and marked
	case err != nil: // no answer shows nothing
		u.unchecked.Store(true)
	case u.looping.Swap(false):
		f.log.Info("dns: upstream no longer leads back here", "upstream", u.addr)
		f.metrics.looping(u.addr, false)
	}
}

// sawProbe tells whether name is one of our own loop probes, and marks the upstream it
// was sent to.
func (f *forwarder) sawProbe(name string) bool {
	if !strings.HasSuffix(strings.ToUpper(name), f.probe+".") {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.upstreams {
		if strings.EqualFold(u.probe, name) {
			u.seen.Store(true)
			f.markLoop(u)
		}
	}
	return true
}

func (f *forwarder) markLoop(u *upstream) {
	if !u.looping.Swap(true) {
		f.log.Warn("dns: upstream leads back here and is not used; give another one in the forward configuration", "upstream", u.addr)
	}
	f.metrics.looping(u.addr, true)
}
