package dnsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairway/dns"

	wire "github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

// Why a question got no answer from upstream.
var (
	errBusy       = errors.New("too many questions on their way")
	errNoRoute    = errors.New("no upstream is configured for this name")
	errNoUpstream = errors.New("no upstream can be used")
)

const (
	// resolveTimeout bounds all attempts for one question together; clients ask again
	// after 5 s.
	resolveTimeout = 5 * time.Second
	// staleWait is how long an upstream is waited for where there is an old answer to give
	// (RFC 8767 section 5): the client must have it before it gives up.
	staleWait = 1800 * time.Millisecond
	// reloadInterval is how often resolv.conf is read again and looping upstreams are
	// given another chance.
	reloadInterval = 10 * time.Second
)

// ask is a question for upstream; equal ones share one answer.
type ask struct {
	name       string
	qtype      uint16
	rd, do, cd bool
}

func newAsk(req *wire.Msg) ask {
	q := req.Question[0]
	a := ask{name: q.Name, qtype: q.Qtype, rd: req.RecursionDesired, cd: req.CheckingDisabled}
	if opt := req.IsEdns0(); opt != nil {
		a.do = opt.Do()
	}
	return a
}

// key is the same for spellings of one name.
func (a ask) key() ask {
	a.name = strings.ToLower(a.name)
	return a
}

// forwarder asks upstream servers, each question once at a time.
type forwarder struct {
	timeout time.Duration
	log     *slog.Logger
	metrics *metrics
	probe   string
	own     func(netip.AddrPort) bool
	flight  singleflight.Group
	failed  chan *upstream
	fresh   chan struct{} // an upstream was added that is not checked for a loop

	routes atomic.Pointer[[]*route]
	hosts  atomic.Pointer[[]*hostsFile]

	mu        sync.Mutex
	cfg       dns.ForwardConfig
	upstreams map[netip.AddrPort]*upstream
	warned    map[string]bool
	serial    int
	// lastServers are the nameservers of each resolv.conf when it was last read.
	lastServers map[string][]string
}

// route is a dns.Route with its upstreams resolved.
type route struct {
	dns.Route
	upstreams []*upstream
	cache     *cache
	inFlight  atomic.Int64
	next      atomic.Uint32
}

func newForwarder(cfg Config, probe string, m *metrics, own func(netip.AddrPort) bool) *forwarder {
	f := &forwarder{
		timeout: cfg.UpstreamTimeout, log: cfg.Log, metrics: m, probe: probe, own: own,
		failed: make(chan *upstream, 64), fresh: make(chan struct{}, 1),
		upstreams: map[netip.AddrPort]*upstream{}, warned: map[string]bool{}, lastServers: map[string][]string{},
	}
	f.routes.Store(&[]*route{})
	f.configure(cfg.Forward)
	return f
}

func (f *forwarder) lameduck() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Lameduck
}

// configure takes routes over; what stays the same keeps its state.
func (f *forwarder) configure(cfg dns.ForwardConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(cfg)
}

// reload reads the files of the configuration in force again.
func (f *forwarder) reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(f.cfg)
}

// take is configure for who holds mu.
func (f *forwarder) take(cfg dns.ForwardConfig) {
	f.readHosts(cfg, f.cfg.Hosts)
	f.cfg = cfg
	before := *f.routes.Load()
	var now []*route
	for _, c := range cfg.Routes {
		r := &route{Route: c, upstreams: f.resolveUpstreams(c)}
		if i := slices.IndexFunc(before, r.same); i >= 0 {
			r = before[i]
		} else if i := slices.IndexFunc(before, r.alike); i >= 0 { // other nameservers in its resolv.conf
			r.cache = before[i].cache
		} else {
			r.cache = newCache(c.Cache, f.metrics)
		}
		now = append(now, r)
	}
	for _, u := range f.upstreams {
		u.tcp.Store(!slices.ContainsFunc(now, func(r *route) bool { return !r.ForceTCP && slices.Contains(r.upstreams, u) }))
	}
	slices.SortStableFunc(now, func(a, b *route) int { return len(b.Zone) - len(a.Zone) })
	f.routes.Store(&now)
	f.forget(now)
}

func (r *route) same(o *route) bool { return r.alike(o) && slices.Equal(r.upstreams, o.upstreams) }

// alike tells whether both are configured the same, whatever the files say.
func (r *route) alike(o *route) bool { return reflect.DeepEqual(r.Route, o.Route) }

// resolveUpstreams turns addresses and resolv.conf paths into upstreams, which routes
// share. The caller holds mu.
func (f *forwarder) resolveUpstreams(r dns.Route) []*upstream {
	var out []*upstream
	for _, to := range r.Upstreams {
		addrs := []string{to}
		if strings.HasPrefix(to, "/") {
			conf, err := wire.ClientConfigFromFile(to)
			switch { // without any, those it had last stay: it may be half written
			case err != nil:
				f.warnOnce("upstreams not read: " + err.Error())
			case len(conf.Servers) > 0:
				f.lastServers[to] = conf.Servers
			}
			addrs = f.lastServers[to]
		}
		for _, s := range addrs {
			a, err := dns.ParseUpstream(s)
			if err != nil {
				f.warnOnce("upstream left out: " + err.Error())
				continue
			}
			if u := f.upstream(a, r.HealthCheck); !slices.Contains(out, u) {
				out = append(out, u)
			}
		}
	}
	return out
}

// warnOnce keeps what is found again at every reload out of the log. The caller holds
// mu.
func (f *forwarder) warnOnce(what string) {
	if !f.warned[what] {
		f.warned[what] = true
		f.log.Warn("dns: " + what)
	}
}

func (f *forwarder) upstream(a netip.AddrPort, interval time.Duration) *upstream {
	u := f.upstreams[a]
	if u == nil {
		f.serial++
		u = &upstream{addr: a, interval: max(interval, 100*time.Millisecond), probe: fmt.Sprintf("%d.%s.", f.serial, f.probe)}
		u.unchecked.Store(true)
		f.upstreams[a] = u
		select {
		case f.fresh <- struct{}{}:
		default:
		}
	}
	return u
}

// forget drops upstreams no route uses. The caller holds mu.
func (f *forwarder) forget(now []*route) {
	for a, u := range f.upstreams {
		if !slices.ContainsFunc(now, func(r *route) bool { return slices.Contains(r.upstreams, u) }) {
			u.dropped.Store(true)
			delete(f.upstreams, a)
			f.metrics.forget(u)
		}
	}
}

// routeFor finds the route of the longest zone name is in.
func (f *forwarder) routeFor(name string) *route {
	name = wire.CanonicalName(name)
	for _, r := range *f.routes.Load() {
		if wire.IsSubDomain(r.Zone, name) {
			if slices.ContainsFunc(r.Except, func(z string) bool { return wire.IsSubDomain(z, name) }) {
				return nil
			}
			return r
		}
	}
	return nil
}

// ask answers from the cache or from upstream. The message returned is shared and must
// not be changed. It gives up with ctx, while the question goes on for others.
func (f *forwarder) ask(ctx context.Context, a ask) (*wire.Msg, error) {
	r := f.routeFor(a.name)
	if r == nil {
		return nil, errNoRoute
	}
	k := r.cache.get(a.key(), time.Now())
	switch {
	case k.msg == nil:
	case k.soon:
		f.metrics.prefetched.Inc()
		f.start(r, a)
		return k.msg, nil
	case k.stale && (k.failed || r.Cache.StaleAtOnce):
		f.metrics.servedStale.Inc()
		if !k.failed {
			f.start(r, a)
		}
		return k.msg, nil
	case !k.stale:
		return k.msg, nil
	}
	if k.msg != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, staleWait)
		defer stop()
	}
	m, err := wait(ctx, f.start(r, a))
	if k.msg != nil && (err != nil || m.Rcode == wire.RcodeServerFailure) {
		f.metrics.servedStale.Inc()
		return k.msg, nil
	}
	return m, err
}

func wait(ctx context.Context, ch <-chan singleflight.Result) (*wire.Msg, error) {
	select {
	case res := <-ch:
		if res.Err != nil {
			return nil, res.Err
		}
		return res.Val.(*wire.Msg), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start asks upstream unless the same question is on its way already.
func (f *forwarder) start(r *route, a ask) <-chan singleflight.Result {
	k := a.key()
	flight := fmt.Sprintf("%p %s %d %t %t %t", r, k.name, k.qtype, k.rd, k.do, k.cd)
	return f.flight.DoChan(flight, func() (m any, err error) {
		defer func() { // on a goroutine of its own, where a panic would end the process
			if p := recover(); p != nil {
				m, err = nil, fmt.Errorf("panic: %v", p)
				f.metrics.panics.Inc()
				f.log.Error("dns: an upstream's reply could not be read; please report this", "question", a.name, "panic", p)
			}
		}()
		return f.fetch(r, a)
	})
}

func (f *forwarder) fetch(r *route, a ask) (*wire.Msg, error) {
	n := r.inFlight.Add(1)
	defer r.inFlight.Add(-1)
	if r.MaxConcurrent > 0 && n > int64(r.MaxConcurrent) {
		f.metrics.rejected.Inc()
		r.cache.failed(a.key(), time.Now())
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	m, err := f.resolve(ctx, r, a)
	if err != nil {
		r.cache.failed(a.key(), time.Now())
		return nil, err
	}
	return r.cache.put(a.key(), m, time.Now()), nil
}

// resolve tries the upstreams in the route's order, each twice while there is time.
func (f *forwarder) resolve(ctx context.Context, r *route, a ask) (*wire.Msg, error) {
	order := r.order()
	if len(order) == 0 {
		f.metrics.noHealthy.Inc()
		return nil, errNoUpstream
	}
	var last error
	var failed *wire.Msg // an answer the route would rather have from another
	for round := range 2 {
		for _, u := range order {
			patience := f.patience(u, round > 0 || len(order) == 1)
			m, err := f.exchange(ctx, u, a, r.ForceTCP, patience)
			if err == nil {
				f.works(u)
				if failed = m; slices.Contains(r.Failover, dns.Rcode(m.Rcode)) {
					continue
				}
				return m, nil
			}
			last = fmt.Errorf("upstream %s: %w", u.addr, err)
			if ctx.Err() != nil {
				return nil, last
			}
			if patience < f.timeout && errors.Is(err, os.ErrDeadlineExceeded) {
				u.most.Store(int32(r.MaxFails))
				f.suspect(u) // it may only be slow: its probes tell
			} else {
				f.fail(u, r.MaxFails)
			}
		}
		if failed != nil {
			return failed, nil
		}
	}
	return nil, last
}

// fail counts a failure; the first starts probing until the upstream answers again.
func (f *forwarder) fail(u *upstream, most int) {
	u.most.Store(int32(most))
	f.count(u)
	f.suspect(u)
}

func (f *forwarder) count(u *upstream) {
	most := u.most.Load()
	if n := u.fails.Add(1); most > 0 && n >= most && u.down.CompareAndSwap(false, true) {
		f.log.Warn("dns: upstream is down", "upstream", u.addr, "failures", n)
	}
}

// suspect has u probed.
func (f *forwarder) suspect(u *upstream) {
	if u.probing.CompareAndSwap(false, true) {
		select {
		case f.failed <- u:
		default:
			u.probing.Store(false)
		}
	}
}

// order lists the upstreams that work, as the policy says. When all are down one is
// tried all the same; those that lead back here never are.
func (r *route) order() []*upstream {
	var up, down []*upstream
	for _, u := range r.upstreams {
		switch {
		case u.looping.Load():
		case u.down.Load():
			down = append(down, u)
		default:
			up = append(up, u)
		}
	}
	if len(up) == 0 && len(down) > 0 {
		return []*upstream{down[rand.IntN(len(down))]}
	}
	switch r.Policy {
	case dns.Sequential:
	case dns.RoundRobin:
		if n := len(up); n > 0 {
			i := int(r.next.Add(1)-1) % n
			up = append(up[i:n:n], up[:i]...)
		}
	default:
		rand.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	}
	return up
}
