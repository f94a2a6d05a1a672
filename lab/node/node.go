// Package node runs one node of the lab in one process: the lab's container
// runtime and the real kubelet, the routes to other nodes' Pods and, if asked
// for, a service proxy as a plain process. In come the lab's settings and the
// node's number; out go Pods that are processes in namespaces. It never
// outlives its process: everything on the node runs in its process namespace,
// so killing it is the same as pulling the plug.
package node

import (
	"context"
	"fmt"
	"net"
	"time"

	"fairway/lab/cri"
	"fairway/lab/images"
	"fairway/lab/probe"
	"fairway/lab/routes"
	"fairway/lab/state"
	"fairway/lab/topology"
)

// Config says which node of which lab this is.
type Config struct {
	Dir    state.Dir
	Lab    state.Lab
	Number int
}

// Name is the node's name.
func (c Config) Name() string { return topology.NodeName(c.Number) }

func (c Config) path(elem ...string) string { return c.Dir.Node(c.Name(), elem...) }

func (c Config) socket() string { return c.path("cri.sock") }

// Run runs the node until one of its parts ends or ctx is done. It must be
// process 1 of fresh process, mount, host name and IPC namespaces, in the
// node's network namespace.
func Run(ctx context.Context, c Config) error {
	if err := prepare(c); err != nil {
		return err
	}
	go reapOrphans(ctx)
	ended := make(chan error, 4)
	run := func(name string, fn func(context.Context) error) {
		go func() { ended <- fmt.Errorf("%s: %s ended: %w", c.Name(), name, orStopped(fn(ctx))) }()
	}
	run("container runtime", func(ctx context.Context) error { return serveRuntime(ctx, c) })
	if err := waitServer(ctx, c, ended); err != nil {
		return err
	}
	run("pod routes", func(ctx context.Context) error {
		return routes.Run(ctx, c.Dir.PKI("proxy.kubeconfig"), c.Name())
	})
	if cmd := proxyCommand(c); cmd != nil {
		run(cmd[0], func(ctx context.Context) error { return keepRunning(ctx, c, cmd) })
	}
	run("kubelet", func(ctx context.Context) error { return runKubelet(ctx, c) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

func serveRuntime(ctx context.Context, c Config) error {
	known, err := images.Load(c.Lab.Images)
	if err != nil {
		return err
	}
	return cri.Serve(ctx, cri.Config{
		Socket:   c.socket(),
		StateDir: c.path("cri"),
		Node:     c.Name(),
		NodeIPs:  c.Lab.Family.Node(c.Number),
		Images:   known,
		Cinit:    c.Lab.Tools.Cinit,
	})
}

// waitServer waits for the runtime's socket and the API server. The kubelet
// started before them would back off for seconds.
func waitServer(ctx context.Context, c Config, ended <-chan error) error {
	for {
		if conn, err := net.Dial("unix", c.socket()); err == nil {
			conn.Close()
			if probe.Server(ctx, c.Lab.Family.ServerURL()) == nil {
				return nil
			}
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
