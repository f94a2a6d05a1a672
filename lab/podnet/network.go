// Package podnet connects Pods to their node: in come the node's Pod CIDRs and a Pod's network namespace, out goes an
// interface eth0 with one address per family. There is no bridge: each Pod has its own veth pair, the Pod sends
// everything to a link-local gateway and the node routes its one address back. It never touches rules, nor any
// namespace but the node's (the caller's own) and the Pod's.
package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// Network holds the address pools of one node.
type Network struct {
	nodeIPs []netip.Addr

	mu    sync.Mutex
	cidrs string
	pools []*Pool
}

// New returns a network without a Pod CIDR. nodeIPs are the addresses the node uses when it speaks to its own Pods.
func New(nodeIPs []netip.Addr) *Network { return &Network{nodeIPs: nodeIPs} }

// SetCIDRs takes "v4", "v6" or "v4,v6", as in UpdateRuntimeConfig of the CRI. The same value again changes nothing; a
// different one is for Pods made from now on.
func (n *Network) SetCIDRs(cidrs string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cidrs == "" || cidrs == n.cidrs {
		return nil
	}
	var pools []*Pool
	for _, text := range strings.Split(cidrs, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("pod CIDR: %w", err)
		}
		pools = append(pools, NewPool(prefix))
	}
	n.cidrs, n.pools = cidrs, pools
	return nil
}

// Ready says whether Pods can be connected.
func (n *Network) Ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pools) > 0
}

// Link is one Pod's connection.
type Link struct {
	Host string // the interface in the node
	IPs  []netip.Addr
}

// Attach connects the network namespace open as nsFD. name is the interface's name in the node. On error nothing is left.
func (n *Network) Attach(name string, nsFD int) (Link, error) {
	ips, err := n.take()
	if err != nil {
		return Link{}, err
	}
	link := Link{Host: name, IPs: ips}
	if err := n.connect(link, nsFD); err != nil {
		return Link{}, errors.Join(fmt.Errorf("%s: %w", name, err), n.Detach(link))
	}
	return link, nil
}

// Detach removes the interface pair and gives the addresses back. It may be repeated.
func (n *Network) Detach(link Link) error {
	err := removeLink(link.Host)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ip := range link.IPs {
		for _, p := range n.pools {
			if p.prefix.Contains(ip) {
				p.Give(ip)
			}
		}
	}
	return err
}

func (n *Network) take() ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pools) == 0 {
		return nil, errors.New("the node has no pod CIDR yet")
	}
	var ips []netip.Addr
	for _, p := range n.pools {
		ip, err := p.Take()
		if err != nil {
			n.giveAll(ips)
			return nil, err
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// giveAll undoes a take that got only some of the families; the pools are in the order of ips.
func (n *Network) giveAll(ips []netip.Addr) {
	for i, ip := range ips {
		n.pools[i].Give(ip)
	}
}
