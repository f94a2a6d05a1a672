package kernel

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Follow calls links when an interface of the node appears or changes, and addrs when an
// address does, until ctx ends. Calls may stand for several events.
func (k *EBPF) Follow(ctx context.Context, links, addrs func()) error {
	var ns *netns.NsHandle
	if k.opts.NetNS != 0 {
		h := netns.NsHandle(k.opts.NetNS)
		ns = &h
	}
	done := make(chan struct{})
	defer close(done)
	linkEvents, addrEvents := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(linkEvents, done, netlink.LinkSubscribeOptions{Namespace: ns}); err != nil {
		return fmt.Errorf("ebpf: following interfaces: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrEvents, done, netlink.AddrSubscribeOptions{Namespace: ns}); err != nil {
		return fmt.Errorf("ebpf: following addresses: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-linkEvents:
			if !ok {
				return fmt.Errorf("ebpf: following interfaces: the kernel dropped events")
			}
			drain(linkEvents)
			links()
		case _, ok := <-addrEvents:
			if !ok {
				return fmt.Errorf("ebpf: following addresses: the kernel dropped events")
			}
			drain(addrEvents)
			addrs()
		}
	}
}

// drain takes what has piled up: one look at the kernel answers all of it.
func drain[T any](events <-chan T) {
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		default:
			return
		}
	}
}
