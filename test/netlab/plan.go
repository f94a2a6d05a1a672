package netlab

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"fairway/kernel"
	"fairway/packet"
	"fairway/proxy"
)

// ServeAll starts a server on every endpoint the plan speaks of. There are none for SCTP:
// this kernel may have no such sockets.
func (lab *Lab) ServeAll(plan *proxy.Plan) error {
	type server struct {
		proto packet.Protocol
		addr  netip.AddrPort
	}
	done := map[server]bool{}
	for _, sp := range plan.Ports {
		for _, e := range slices.Concat(sp.Cluster, sp.Local) {
			s := server{sp.Proto, e.Addr}
			if done[s] || sp.Proto == packet.SCTP {
				continue
			}
			done[s] = true
			if err := lab.Serve(sp.Proto, e.Addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// MissingIPVS tells what IPVS mode lacks on this machine, nil for nothing: it asks the
// kernel in a namespace of its own.
func MissingIPVS() error {
	lab, err := New(Layout{})
	if err != nil {
		return err
	}
	defer lab.Close()
	hand, missing, err := kernel.OpenIPVS(context.Background(), lab.Node.NS(), kernel.AnyVariant)
	if err != nil {
		return err
	}
	hand.Close()
	return errors.Join(missing[false], missing[true])
}
