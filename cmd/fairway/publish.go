package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"fairway/announce"
	"fairway/ingress"
	"fairway/kernel"
	"fairway/kube"
	"fairway/lb"
	"fairway/model"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/rest"
)

// sink is where a pass's report goes: the API server, or the log and the overlay of
// objects read from files.
type sink interface {
	Publish(kube.Report)
	Logged([]model.Problem)
}

// outbox collects what the stages of one pass want written and hands it on whole.
type outbox struct {
	sink     sink
	snapshot func() *model.Snapshot // of the pass that ends

	mu        sync.Mutex
	leading   bool
	services  []lb.Want
	ingresses []kube.IngressStatus
}

func (o *outbox) leads() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leading
}

func (o *outbox) addresses(r lb.Result) { o.services = r.Wants }

func (o *outbox) ingressStatus(list []ingress.Status) {
	o.ingresses = o.ingresses[:0:0]
	for _, s := range list {
		w := kube.IngressStatus{Ingress: s.Ingress.Ref()}
		for _, a := range s.Addresses {
			if ip, err := netip.ParseAddr(a); err == nil {
				w.Addrs = append(w.Addrs, ip)
			} else {
				w.Hostnames = append(w.Hostnames, a)
			}
		}
		o.ingresses = append(o.ingresses, w)
	}
}

// report ends a pass.
func (o *outbox) report(cluster, node []model.Problem) {
	o.sink.Publish(kube.Report{Problems: cluster, Node: node, Services: kube.WithProblems(o.services, o.snapshot(), cluster), Ingresses: o.ingresses})
}

// openPublisher decides where reports go and, with an API server, runs for leader.
func (d *daemon) openPublisher() error {
	d.out = &outbox{snapshot: d.loop.Snapshot}
	d.loop.Report = d.out.report
	if d.files != nil {
		d.local = &kube.Local{Changed: d.redeliver, State: d.cfg.raw.LoadBalancer.StateFile}
		if err := d.local.Load(); err != nil {
			slog.Warn("addresses are given out anew", "err", err)
		}
		d.out.sink, d.out.leading = d.local, true
		d.out.sink.Logged(d.known())
		return nil
	}
	clients, err := newClients(d.api.Config)
	if err != nil {
		return err
	}
	d.clients = clients
	p := &kube.Publisher{Services: clients.core, Events: clients.core, Ingresses: clients.net, Node: d.cfg.raw.Node}
	d.out.sink = p
	d.out.sink.Logged(d.known())
	leader := &kube.Leader{Client: clients.coord, Namespace: d.cfg.raw.LoadBalancer.LeaseNamespace, ID: d.cfg.raw.Node,
		Changed: func(leading bool) {
			slog.Info("leadership", "leading", leading)
			d.out.mu.Lock()
			d.out.leading = leading
			d.out.mu.Unlock()
			p.Lead(leading)
			d.loop.Wake()
		}}
	d.jobs = append(d.jobs,
		func(ctx context.Context) error { leader.Run(ctx); return nil },
		func(ctx context.Context) error { p.Run(ctx); return nil })
	return nil
}

// clients are the typed clients of the groups written to.
type clients struct {
	core  *coreclient.CoreV1Client
	net   *networkingclient.NetworkingV1Client
	coord *coordinationclient.CoordinationV1Client
}

func newClients(cfg *rest.Config) (*clients, error) {
	var c clients
	var err error
	if c.core, err = coreclient.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	if c.net, err = networkingclient.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	if c.coord, err = coordinationclient.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return &c, nil
}

// nodeLeases keeps this node's Lease and opens the fence as long as it is kept.
func (d *daemon) nodeLeases(fence *announce.Fence) *kube.NodeLeases {
	return &kube.NodeLeases{
		Client: d.clients.coord, Namespace: d.cfg.raw.LoadBalancer.LeaseNamespace, Node: d.cfg.raw.Node,
		Times: kube.DefaultLeaseTimes(), Now: announce.Now,
		Extended: fence.Extend, Unreachable: fence.Unreachable, Changed: d.loop.Wake,
	}
}

// deliver hands objects read from files to the loop with the addresses given to them.
func (d *daemon) deliver(o model.Objects, problems []model.Problem) {
	d.mu.Lock()
	d.read, d.readProblems = o, problems
	d.mu.Unlock()
	d.redeliver()
}

func (d *daemon) redeliver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.read
	o.Services = d.local.Overlay(o.Services)
	o = d.ownNode(o)
	d.loop.Deliver(o, d.readProblems)
}

// ownNode stands in for the Node that manifests need not have, with the machine's
// addresses of now; the object stays the same while they do.
func (d *daemon) ownNode(o model.Objects) model.Objects {
	if len(o.Nodes) > 0 {
		return o
	}
	if addrs := kernel.DefaultAddrs(); d.own == nil || !slices.Equal(addrs, d.ownAddrs) {
		d.own, d.ownAddrs = withOwnNode(o, d.cfg.raw.Node, addrs).Nodes, addrs
	}
	o.Nodes = d.own
	return o
}
