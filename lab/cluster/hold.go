package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"fairway/lab/relay"
	"fairway/lab/resolver"
	"fairway/lab/state"
	"fairway/lab/topology"
)

// HoldFabric is the process that keeps the LAN, client and router alive, relays
// the host's loopback ports into the LAN and is the LAN's resolver. It inherits the open files
// that `up` made, in the order of the fd constants.
func HoldFabric(ctx context.Context, dir state.Dir) error {
	lab, err := dir.Load()
	if err != nil {
		return err
	}
	spaces := []*os.File{os.NewFile(fdLAN, "fabric"), os.NewFile(fdClient, "client"), os.NewFile(fdRouter, "router")}
	defer closeAll(spaces)
	ingress, err := relay.NewIngress(dir.Kubeconfig(), lab.Family)
	if err != nil {
		return err
	}
	server := net.JoinHostPort(lab.Family.Fabric()[0].String(), fmt.Sprint(topology.ServerPort))
	ended := make(chan error, 4)
	for fd, target := range map[uintptr]func(context.Context) string{
		fdAPI:   func(context.Context) string { return server },
		fdHTTP:  ingress.Target(80),
		fdHTTPS: ingress.Target(443),
	} {
		l, err := inherited(fd)
		if err != nil {
			return err
		}
		go func() { ended <- relay.Serve(ctx, l, spaces[0], target) }()
	}
	names := resolver.Resolver{File: dir.Hosts()}
	go func() { ended <- names.Serve(ctx, spaces[0], lab.Family.Fabric()) }()
	return errors.Join(<-ended, <-ended, <-ended, <-ended)
}

func inherited(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherited listener %d: %w", fd, err)
	}
	return l, nil
}
