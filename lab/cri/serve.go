// Package cri is the lab's container runtime: in come the kubelet's calls (CRI v1, runtime and image services, on one
// unix socket), out go processes in namespaces of this node, started through cinit, with programs of this machine in
// the place of images. It sets no cgroup limits, applies no seccomp or AppArmor profile and keeps no container past the
// end of its own process.
package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"fairway/lab/hostport"
	"fairway/lab/images"
	"fairway/lab/podnet"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config is what a node tells its runtime.
type Config struct {
	Socket   string       // unix socket to serve on
	StateDir string       // directory of ours; what an earlier process left in it is removed
	Node     string       // the node's name
	NodeIPs  []netip.Addr // addresses the node speaks to its Pods from, one per family
	Images   *images.Map
	Cinit    string // the container helper's binary
}

// Serve answers the kubelet until ctx ends, then kills every container and removes what it made. The process must
// already be in the node's mount, process and network namespaces, with a /proc that shows them.
func Serve(ctx context.Context, cfg Config) error {
	if err := cleanState(cfg); err != nil {
		return fmt.Errorf("container runtime of %s: %w", cfg.Node, err)
	}
	ports, err := hostport.New()
	if err != nil {
		return fmt.Errorf("container runtime of %s: %w", cfg.Node, err)
	}
	s := newServer(cfg, podnet.New(cfg.NodeIPs), ports)
	stopStreams, err := s.startStreams()
	if err != nil {
		return fmt.Errorf("container runtime of %s: streaming: %w", cfg.Node, err)
	}
	listener, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		return fmt.Errorf("container runtime of %s: %w", cfg.Node, err)
	}
	rpc := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	runtimeapi.RegisterRuntimeServiceServer(rpc, s)
	runtimeapi.RegisterImageServiceServer(rpc, s)
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		rpc.Stop()
	}
	return errors.Join(err, stopStreams(), s.shutdown(), ports.Close())
}

// cleanState makes the state directory as after a first start. Processes and network of an earlier run are gone with its
// process namespace; mounts may be left when that process shared our mount namespace.
func cleanState(cfg Config) error {
	if err := os.MkdirAll(cfg.StateDir, 0o755); err != nil {
		return err
	}
	if err := unmountBelow(cfg.StateDir); err != nil {
		return err
	}
	for _, dir := range []string{"pods", "scratch"} {
		path := filepath.Join(cfg.StateDir, dir)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	err := os.Remove(cfg.Socket)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.MkdirAll(filepath.Dir(cfg.Socket), 0o755)
}

// shutdown ends every Pod at once; asking first is the kubelet's part.
func (s *server) shutdown() error {
	var errs []error
	for _, p := range s.allSandboxes() {
		for _, c := range s.containersOf(p.id) {
			errs = append(errs, c.stop(0))
		}
		errs = append(errs, s.stopSandbox(p))
		errs = append(errs, s.forgetSandbox(p))
	}
	return errors.Join(errs...)
}
