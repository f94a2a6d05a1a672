// Package routes keeps the routes to the other nodes' Pods: a Pod range is
// reached through its node's address on the LAN. In come Node objects; out go
// routes in the network namespace the process runs in. It never touches a
// route that it has not made, which it knows by the route's protocol number.
package routes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Protocol marks our routes, as `ip route` shows it.
const Protocol = 72

// auditEvery bounds how long a route deleted by others stays away.
const auditEvery = 5 * time.Second

// Want is what the routes should be: Pod range to next hop.
type Want map[netip.Prefix]netip.Addr

// Run keeps the routes right until ctx ends. The Pods of node self, if it is
// not empty, are local and get none. The kubeconfig's identity must be allowed
// to list and watch Nodes.
func Run(ctx context.Context, kubeconfig, self string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("pod routes: %w", err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("pod routes: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	changed := make(chan struct{}, 1)
	nudge := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: nudge, UpdateFunc: func(_, o any) { nudge(o) }, DeleteFunc: nudge})
	if err != nil {
		return fmt.Errorf("pod routes: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	for {
		list, err := nodes.Lister().List(labels.Everything())
		if err == nil {
			err = apply(Plan(list, self))
		}
		if err != nil {
			klog.ErrorS(err, "Pod routes")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-audit.C:
		}
	}
}

// Plan computes the routes for a node from all Nodes.
func Plan(nodes []*v1.Node, self string) Want {
	want := Want{}
	for _, n := range nodes {
		if n.Name == self {
			continue
		}
		for _, r := range n.Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(r)
			if err != nil {
				continue
			}
			if hop, ok := internalIP(n, prefix.Addr().Is4()); ok {
				want[prefix] = hop
			}
		}
	}
	return want
}

func internalIP(n *v1.Node, v4 bool) (netip.Addr, bool) {
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type == v1.NodeInternalIP && err == nil && ip.Is4() == v4 {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// apply makes the kernel's routes of our protocol equal to want.
func apply(want Want) error {
	have, err := netlink.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var errs []error
	kept := map[netip.Prefix]bool{}
	for _, r := range have {
		prefix, hop := parse(r)
		if want[prefix] == hop && hop.IsValid() {
			kept[prefix] = true
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route %s: %w", prefix, err))
		}
	}
	for prefix, hop := range want {
		if kept[prefix] {
			continue
		}
		if err := netlink.RouteReplace(build(prefix, hop)); err != nil {
			errs = append(errs, fmt.Errorf("route %s via %s: %w", prefix, hop, err))
		}
	}
	return errors.Join(errs...)
}

func build(prefix netip.Prefix, hop netip.Addr) *netlink.Route {
	prefix = prefix.Masked()
	return &netlink.Route{
		Protocol: Protocol,
		Dst: &net.IPNet{IP: prefix.Addr().AsSlice(),
			Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		Gw: hop.AsSlice(),
	}
}

func parse(r netlink.Route) (netip.Prefix, netip.Addr) {
	hop, _ := netip.AddrFromSlice(r.Gw)
	if r.Dst == nil {
		return netip.Prefix{}, hop.Unmap()
	}
	ip, _ := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), ones), hop.Unmap()
}
