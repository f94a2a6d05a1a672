package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"fairway/announce"
	"fairway/dns"
	"fairway/ingress"
	"fairway/kernel"
	"fairway/kube"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/server/admin"
	dnsserver "fairway/server/dns"
	httpserver "fairway/server/http"
)

const (
	// canaryEvery is kube-proxy's iptables syncPeriod, at which it looks for its canary.
	canaryEvery = 30 * time.Second
	// generationEvery is how often the kernel is asked whether somebody else wrote
	// nftables rules; the answer costs microseconds.
	generationEvery = 2 * time.Second
)

// watcher is a backend that notices somebody else's hands in the rules long before the
// next audit.
type watcher interface {
	Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error))
}

// openBackend takes the proxy mode asked for; the rules of other modes are removed
// once this one's are in force, so that traffic flows during the switch.
func (d *daemon) openBackend(ctx context.Context) error {
	b, problems, err := openMode(ctx, d.cfg.raw.Proxy.Mode, d.cfg.raw.Node)
	if err != nil {
		return err
	}
	for _, p := range problems {
		slog.Warn(p.String())
	}
	d.loop.Backend = b
	flows := &flowQueue{wake: make(chan struct{}, 1)}
	d.loop.AfterApply = func(old, new *proxy.Plan) { flows.add(proxy.StaleFlows(old, new)) }
	d.jobs = append(d.jobs, flows.run)
	every := canaryEvery
	if b.Mode() == "nftables" {
		every = generationEvery
	}
	if w, ok := b.(watcher); ok {
		d.jobs = append(d.jobs, func(ctx context.Context) error { w.Watch(ctx, every, d.repaired); return nil })
	}
	d.loop.Stages = append(d.loop.Stages, &once{do: func(ctx context.Context) { removeOthers(ctx, b.Mode(), d.cfg.raw.Node) }})
	return nil
}

func (d *daemon) repaired(lines []string, err error) {
	d.observer.Drift(lines)
	if err != nil {
		slog.Warn("rules were changed by somebody else and are not all restored", "lines", len(lines), "err", err)
	} else {
		slog.Warn("rules were changed by somebody else and are restored", "lines", len(lines), "first", first(lines))
	}
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// once is a stage that acts after the first rules are in force.
type once struct {
	do   func(context.Context)
	done bool
}

func (o *once) Withdraw(*model.Snapshot) {}

func (o *once) Publish(ctx context.Context, _ *model.Snapshot, _ *proxy.Plan) []model.Problem {
	if !o.done {
		o.done = true
		go o.do(ctx)
	}
	return nil
}

// removeOthers cleans up what other modes left on the node.
func removeOthers(ctx context.Context, mode, node string) {
	for _, m := range modes() {
		if string(m.name) == mode {
			continue
		}
		if err := m.cleanup(ctx, node); err != nil {
			slog.Debug("rules of another mode not looked at", "mode", m.name, "err", err)
		}
	}
}

// flowQueue holds stale UDP flows to delete off the loop: a node has thousands, and
// rules do not wait for them.
type flowQueue struct {
	mu   sync.Mutex
	list []proxy.Flow
	wake chan struct{}
}

func (q *flowQueue) add(flows []proxy.Flow) {
	if len(flows) == 0 {
		return
	}
	q.mu.Lock()
	q.list = append(q.list, flows...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *flowQueue) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.wake:
		}
		q.mu.Lock()
		list := q.list
		q.list = nil
		q.mu.Unlock()
		n, err := kernel.DeleteFlows(ctx, list)
		if err != nil && ctx.Err() == nil {
			slog.Warn("stale UDP flows not deleted", "err", err)
		}
		slog.Debug("stale UDP flows deleted", "flows", n)
	}
}

func (d *daemon) openDNS() error {
	addrs, err := listen("dns.listen", d.cfg.raw.DNS.Listen)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	d.dns = dnsserver.New(dnsserver.Config{
		Addresses: families(addrs), Forward: d.cfg.forward(), Version: "fairway " + version, Hostname: host,
		Registerer: d.registry, Log: slog.Default(),
	})
	d.loop.Stages = append(d.loop.Stages, &loop.Names{Config: d.cfg.dns(), Set: func(z *dns.Zone) { d.dns.SetZone(z) }})
	d.ready = append(d.ready, func() error {
		if !d.dns.Ready() {
			return errors.New("DNS is not answering yet")
		}
		return nil
	})
	d.servers = append(d.servers, retried("DNS", d.dns.Serve))
	return nil
}

// retried serves again five seconds after a failure: an address in use must not take
// the other jobs down.
func retried(what string, serve func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			err := serve(ctx)
			if ctx.Err() != nil {
				return nil
			}
			slog.Error(what+" is not served; trying again", "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(5 * time.Second):
			}
		}
	}
}

func (d *daemon) openIngress() error {
	plain, err := listen("ingress.http", []string{d.cfg.raw.Ingress.HTTP})
	if err != nil {
		return err
	}
	secure, err := listen("ingress.https", []string{d.cfg.raw.Ingress.HTTPS})
	if err != nil {
		return err
	}
	c := httpserver.Default()
	c.HTTP, c.HTTPS, c.TrustedProxies = families(plain), families(secure), d.cfg.trustedProxies
	c.ReusePort, c.LameDuck, c.DrainTimeout = true, lameDuck, drainTime
	c.AccessLog, c.Log, c.Registerer = os.Stdout, slog.Default(), d.registry
	d.http = httpserver.New(c)
	first := make(chan struct{})
	tabled := sync.OnceFunc(func() { close(first) })
	set := func(t *ingress.Table) {
		d.http.SetTable(t)
		tabled()
	}
	routes := &loop.Routes{Config: d.cfg.ingress(), Set: set, Service: d.cfg.publishService, Status: d.out.ingressStatus}
	if d.api != nil {
		routes.Follow = func(ctx context.Context, secrets []model.Name) bool { return d.api.Follow(ctx, secrets, nil) }
	}
	d.loop.Stages = append(d.loop.Stages, routes)
	serve := retried("Ingress", d.http.Serve)
	d.servers = append(d.servers, func(ctx context.Context) error {
		select {
		case <-first: // before it every host would be answered 404
			return serve(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	d.ready = append(d.ready, func() error {
		if !d.http.Ready() {
			return errors.New("the first Ingress routes are not in force yet")
		}
		return nil
	})
	return nil
}

// openAddresses announces what falls to this node; with manifests it is the only node
// and leads.
func (d *daemon) openAddresses() {
	fence := &announce.Fence{}
	voice := &announce.Announcer{Log: slog.Default()}
	a := &loop.Addresses{
		Config: d.cfg.lb(), Node: d.cfg.raw.Node, Leads: d.out.leads, Write: d.out.addresses,
		Announce: func(m map[netip.Addr][]string) {
			for a, on := range m {
				if len(on) == 0 { // no L2Advertisement says where
					m[a] = d.cfg.raw.LoadBalancer.Interfaces
				}
			}
			if err := voice.Set(m); err != nil {
				slog.Warn("some addresses are not announced", "err", err)
			}
		},
	}
	if d.api != nil {
		fence.Quiet = 2 * kube.DefaultLeaseTimes().Duration
		voice.Fence = fence
		leases := d.nodeLeases(fence)
		a.Live = leases.Live
		d.jobs = append(d.jobs, func(ctx context.Context) error { leases.Run(ctx); return nil })
	}
	d.loop.Stages = append(d.loop.Stages, a)
	d.jobs = append(d.jobs, func(ctx context.Context) error { voice.Run(ctx); return nil })
}

func (d *daemon) listen(field, addr string, h http.Handler) {
	if addr == "" {
		return
	}
	d.jobs = append(d.jobs, func(ctx context.Context) error {
		admin.Serve(ctx, addr, h, func(err error) { slog.Error(field, "err", err) })
		return nil
	})
}

func (d *daemon) healthPortFailed(c proxy.HealthCheck, err error) {
	if err != nil {
		slog.Error("healthCheckNodePort not served", "service", c.Service, "port", c.Port, "err", err)
	}
}
