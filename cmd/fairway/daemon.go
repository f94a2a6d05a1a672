package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fairway/kernel"
	"fairway/kube"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/server/admin"
	dnsserver "fairway/server/dns"
	httpserver "fairway/server/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// daemon is the wiring of one process.
type daemon struct {
	cfg      config
	from     string // where objects come from, for people
	registry *prometheus.Registry
	health   *admin.Health
	observer *admin.Observer
	loop     *loop.Loop
	ports    *admin.HealthPorts
	ready    []func() error
	// what the Corefile asks for in vain, or is wrong with it
	corefileProblems atomic.Pointer[[]model.Problem]
	// standing are the node's Problems that hold as long as this process: warnings about
	// the configuration, what the mode cannot do here.
	standing []model.Problem
	started  time.Time

	api     *kube.API // nil with manifests
	clients *clients
	files   *kube.Files // nil with an API server
	local   *kube.Local
	out     *outbox
	dns     *dnsserver.Server
	http    *httpserver.Server
	// servers answer clients. They drain when they are told to end; jobs, which run
	// until their context ends, go on until they have.
	servers, jobs []func(context.Context) error

	mu           sync.Mutex
	read         model.Objects // from files, before the overlay
	readProblems []model.Problem
	own          []*corev1.Node // this machine, where the files have no Node
	ownAddrs     []netip.Addr
	dnsPorts     map[string]model.Problem
}

// newDaemon builds everything and opens nothing that cannot be left as it is.
func newDaemon(ctx context.Context, cfg config) (*daemon, error) {
	d := &daemon{registry: prometheus.NewRegistry(), started: time.Now()}
	d.note(warningProblems(cfg.raw.Node, cfg.raw.warnings)...)
	d.takeWarnings(cfg)
	cfg, backend, err := d.chooseMode(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d.cfg = cfg
	p := cfg.raw.Proxy
	d.health = admin.NewHealth(2*p.SyncPeriod.Duration, time.Now, familyNames()...)
	d.observer = admin.NewObserver(d.registry, d.health, p.Mode)
	if err := d.openSource(); err != nil {
		return nil, err
	}
	d.loop = &loop.Loop{
		Node: cfg.raw.Node, Proxy: d.cfg.proxy, DetectFromNode: cfg.detectFromNode, BindAddr: cfg.bindAddress,
		NodeIPs: kernel.DefaultAddrs(), LocalAddrs: kernel.LocalAddrs,
		Observe: d.observer, AuditEvery: p.AuditPeriod.Duration, MinSync: p.MinSyncPeriod.Duration, LastRetry: p.SyncPeriod.Duration,
		Standing: d.standingProblems,
	}
	if d.api != nil {
		d.openAge()
	}
	if err := d.openPublisher(); err != nil {
		return nil, err
	}
	if cfg.roles["proxy"] {
		if backend, err = d.setNode(ctx, backend); err != nil {
			return nil, err
		}
		d.openBackend(backend)
	}
	if cfg.roles["dns"] {
		if err := d.openDNS(); err != nil {
			return nil, err
		}
	}
	if cfg.roles["lb"] {
		d.openAddresses()
	}
	if cfg.roles["ingress"] {
		if err := d.openIngress(); err != nil {
			return nil, err
		}
	}
	d.openAdmin()
	return d, nil
}

func (d *daemon) openSource() error {
	if dir := d.cfg.raw.Manifests; dir != "" {
		d.files, d.from = &kube.Files{Paths: []string{dir}}, dir
		_, _, err := d.files.Read() // a path that is not there is told now, not in the log
		return err
	}
	rest, err := kube.ClientConfig(d.cfg.raw.Kubeconfig, d.cfg.raw.Server)
	if err != nil {
		return fmt.Errorf("%w (or follow a directory: --manifests DIR)", err)
	}
	d.from = rest.Host
	d.cfg.proxy.APIServers = apiServers(rest.Host)
	d.api = &kube.API{Config: rest, Kinds: kube.Kinds{
		Namespaces: d.cfg.roles["dns"], Pods: d.cfg.roles["dns"] && needsPods(d.cfg.dns()),
		Ingresses: d.cfg.roles["ingress"], Pools: d.cfg.roles["lb"],
	}}
	return nil
}

// serve runs everything until ctx ends or a part fails. Then the servers drain, while
// all else goes on: the rules must follow as the cluster takes this node's own servers
// out, or its Pods' names would be asked here to the last moment and beyond.
func (d *daemon) serve(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	rest, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	start := func(group *sync.WaitGroup, ctx context.Context, jobs ...func(context.Context) error) {
		for _, job := range jobs {
			group.Go(func() {
				if err := job(ctx); err != nil && !errors.Is(err, context.Canceled) {
					stop(err)
				}
			})
		}
	}
	var servers, others sync.WaitGroup
	start(&servers, ctx, d.servers...)
	start(&others, rest, d.jobs...)
	start(&others, rest, d.giveBackMemory, d.source, func(ctx context.Context) error { d.loop.Run(ctx); return nil })
	<-ctx.Done()
	slog.Info("stopping: new requests are taken for " + lameDuck.String() + ", open ones get " + drainTime.String() + " more")
	if !ended(&servers, lameDuck+drainTime+time.Second) {
		slog.Warn("some requests were still open and were cut")
	}
	end()
	if !ended(&others, lastTime) {
		slog.Warn("not everything ended in time")
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// ended waits for a group, and tells whether it ended within limit.
func ended(group *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

func (d *daemon) source(ctx context.Context) error {
	if d.files != nil {
		return d.files.Watch(ctx, d.deliver)
	}
	return d.api.Run(ctx, d.loop.Deliver)
}

// nodeState is the last stage: what the node says of itself.
type nodeState struct {
	d         *daemon
	nodePorts string // what was last told of them
}

func (n *nodeState) Withdraw(*model.Snapshot) {}

func (n *nodeState) Publish(ctx context.Context, snap *model.Snapshot, plan *proxy.Plan) []model.Problem {
	node := snap.Node(n.d.cfg.raw.Node)
	n.d.health.Leaving(n.d.api != nil && (node == nil || node.Leaving))
	var problems []model.Problem
	if n.d.cfg.roles["proxy"] {
		n.d.ports.Set(ctx, plan.Health, healthAddrs(plan.Config))
		n.tellNodePorts(plan.Config)
		problems = n.d.cfg.takenPorts(plan)
	}
	if n.d.api != nil && node == nil {
		problems = append(problems, nodeUnknown(n.d.cfg.raw.Node))
	}
	return problems
}

// nodeUnknown is what a wrong name looks like: nothing fails, and yet no endpoint is
// this node's.
func nodeUnknown(name string) model.Problem {
	return model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: name}}, Reason: "NodeNotFound",
		Message: "the cluster has no Node of this name: no endpoint counts as local here, no address is announced; give this node's name with --node, $NODE_NAME or the configuration's node"}
}

func (d *daemon) mode() string {
	if d.loop.Backend == nil {
		return "none"
	}
	return d.loop.Backend.Mode()
}

func (d *daemon) isReady() error {
	if d.loop.Plan() == nil {
		return errors.New("the first rules are not in force yet")
	}
	for _, r := range d.ready {
		if err := r(); err != nil {
			return err
		}
	}
	return nil
}

func (d *daemon) planText() string {
	if p := d.loop.Plan(); p != nil {
		return p.Text()
	}
	return ""
}

func (d *daemon) programText() string {
	if p := d.loop.Plan(); p != nil {
		return program(d.cfg.raw.Proxy.Mode, p)
	}
	return ""
}

// ipv6 tells whether this machine has the family at all.
func ipv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// families drops addresses of a family the machine does not have.
func families(in []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range in {
		if a.Addr().Is4() || ipv6() {
			out = append(out, a)
		}
	}
	return out
}
