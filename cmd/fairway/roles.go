package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"fairway/announce"
	"fairway/dns"
	"fairway/ingress"
	"fairway/kube"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	dnsserver "fairway/server/dns"
	httpserver "fairway/server/http"
)

// generationEvery is how often the kernel is asked whether somebody else wrote nftables
// rules; the answer costs microseconds.
const generationEvery = 2 * time.Second

// watcher is a backend that notices somebody else's hands in the rules long before the
// next audit.
type watcher interface {
	Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error))
}

// openBackend wires the backend of the mode in force; what other modes left is removed
// once its rules are in force, so that traffic flows during the switch.
func (d *daemon) openBackend(b loop.Backend) {
	d.loop.Backend = b
	flows := newFlowQueue(d.observer.Flows)
	d.loop.AfterApply = func(old, new *proxy.Plan) { flows.add(proxy.StaleFlows(old, new)) }
	d.jobs = append(d.jobs, flows.run)
	every := d.cfg.raw.Proxy.SyncPeriod.Duration // at which kube-proxy looks for its canary
	if b.Mode() == string(proxy.NFTables) || b.Mode() == string(proxy.Userspace) {
		every = generationEvery
	}
	if s, ok := b.(standing); ok {
		d.alsoStanding(s)
	}
	if l, ok := b.(leaver); ok {
		d.leave(l)
	}
	d.relayLocalhost()
	if w, ok := b.(watcher); ok {
		d.jobs = append(d.jobs, func(ctx context.Context) error { w.Watch(ctx, every, d.repaired); return nil })
	}
	d.loop.Stages = append(d.loop.Stages, &once{do: func(ctx context.Context) { removeOthers(ctx, b.Mode(), d.cfg.raw.Node) }})
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

func (d *daemon) openDNS() error {
	addrs, err := listen("dns.listen", d.cfg.raw.DNS.Listen)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	d.dns = dnsserver.New(dnsserver.Config{
		Addresses: families(addrs), Forward: d.cfg.forward(), Version: "fairway " + version, Hostname: host,
		Registerer: d.registry, Log: slog.Default(), Sockets: d.cfg.raw.DNS.Sockets, MaxTCP: d.cfg.raw.DNS.MaxTCPConnections,
		LargePerSecond: cmp.Or(d.cfg.raw.DNS.LargePerSecond, -1), QueriesPerSecond: d.cfg.raw.DNS.QueriesPerSecond,
	})
	d.openDNSPorts()
	names := &loop.Names{Config: d.cfg.dns(), Set: func(z *dns.Zone) { d.dns.SetZone(z) }}
	d.loop.Stages = append(d.loop.Stages, names)
	if d.cfg.corefile != nil {
		d.jobs = append(d.jobs, func(ctx context.Context) error { d.followCorefile(ctx, names); return nil })
	}
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
