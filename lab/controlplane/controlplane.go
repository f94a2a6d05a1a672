// Package controlplane runs a Kubernetes control plane in one process: an
// embedded etcd, and the API server, controller manager and scheduler of
// k8s.io/kubernetes as libraries. In comes the lab's directory with its
// certificates; out goes an API server on the LAN. It never makes
// certificates, namespaces or nodes, and its data is thrown away with the lab.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"time"

	"fairway/lab/probe"
	"fairway/lab/routes"
	"fairway/lab/state"
	"fairway/lab/topology"

	"go.etcd.io/etcd/server/v3/embed"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const etcdURL = "http://127.0.0.1:2379"

// Run runs the control plane until one of its parts ends, which is always an
// error, or the process is told to stop. It must run inside the LAN's network
// namespace.
func Run(dir state.Dir, family topology.Family) error {
	// The three components set up logging one after the other; the second
	// would be refused.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged

	go startLavishly()
	etcd, err := startEtcd(dir.Path("etcd"))
	if err != nil {
		return err
	}
	defer etcd.Close()

	// The API server's command installs the process' only signal handler; its
	// context ends on SIGTERM.
	cmd := apiserver.NewAPIServerCommand()
	cmd.SetArgs(serverFlags(dir, family))
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	ended := make(chan error, 4)
	run := func(name string, fn func(context.Context) error) {
		go func() { ended <- fmt.Errorf("%s ended: %w", name, errOr(fn(ctx))) }()
	}
	run("kube-apiserver", cmd.ExecuteContext)
	if err := waitReady(ctx, family.ServerURL(), ended); err != nil {
		return err
	}
	run("kube-controller-manager", func(ctx context.Context) error { return runManager(ctx, dir, family) })
	run("kube-scheduler", func(ctx context.Context) error { return runScheduler(ctx, dir) })
	run("pod routes", func(ctx context.Context) error {
		return routes.Run(ctx, dir.PKI("proxy.kubeconfig"), "")
	})
	select {
	case err := <-ended:
		if ctx.Err() != nil {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
}

// startLavishly lets the process collect garbage rarely while it starts, which
// saves a fifth of the start's work, and gives the memory back afterwards.
func startLavishly() {
	usual := debug.SetGCPercent(1000)
	time.Sleep(startTime)
	debug.SetGCPercent(usual)
	debug.FreeOSMemory()
}

// startTime is a start with nodes on a busy machine of two cores.
const startTime = 15 * time.Second

var errStopped = errors.New("stopped without an error")

func errOr(err error) error {
	if err == nil {
		return errStopped
	}
	return err
}

func startEtcd(dir string) (*embed.Etcd, error) {
	at, err := url.Parse(etcdURL)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	cfg.UnsafeNoFsync = true // the data dies with the lab
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, fmt.Errorf("etcd: %w", err)
	case <-time.After(time.Minute):
		etcd.Close()
		return nil, errors.New("etcd: not ready after a minute")
	}
}

// waitReady polls the API server's readyz.
func waitReady(ctx context.Context, server string, ended <-chan error) error {
	for {
		if probe.Server(ctx, server) == nil {
			return nil
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(25 * time.Millisecond):
		}
	}
}
