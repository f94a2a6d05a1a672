package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is one network namespace.
type Host struct {
	Name string
	// Cgroup is where what Do runs is, nil for where this process is.
	Cgroup *Cgroup

	ns    netns.NsHandle
	nl    *netlink.Handle
	addrs []netip.Addr
}

// newHost makes a namespace with loopback up. addrs go on loopback.
func newHost(name string, addrs []netip.Addr, forward bool) (*Host, error) {
	h := &Host{Name: name, ns: netns.None()}
	err := onThread(func() error {
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("new namespace: %w", err)
		}
		h.ns = ns
		if err := sysctls(forward); err != nil {
			return err
		}
		h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		h.close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	lo, err := h.up("lo")
	if err != nil {
		h.close()
		return nil, err
	}
	for _, a := range addrs {
		if err := h.addAddr(lo, netip.PrefixFrom(a, a.BitLen()), unix.RT_SCOPE_UNIVERSE); err != nil {
			h.close()
			return nil, fmt.Errorf("%s: address %s: %w", name, a, err)
		}
	}
	return h, nil
}

// sysctls turns duplicate address detection off, which would keep an IPv6 address
// silent for a second, and forwarding on where wanted. Redirects are off: the node
// would send one for each packet that leaves the way it came, and they use up the rate
// of ICMP errors, rejections among them; that rate is not limited here.
func sysctls(forward bool) error {
	set := map[string]string{
		"ipv6/conf/default/accept_dad": "0", "ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/dad_transmits": "0",
		"ipv6/conf/default/accept_ra": "0",
		"ipv4/icmp_ratelimit":         "0", "ipv6/icmp/ratelimit": "0",
		"ipv4/conf/all/send_redirects": "0", "ipv4/conf/default/send_redirects": "0",
	}
	if forward {
		set["ipv4/ip_forward"], set["ipv6/conf/all/forwarding"] = "1", "1"
	}
	for k, v := range set {
		if err := os.WriteFile("/proc/sys/net/"+k, []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}

// onThread runs f on a thread of its own that may change namespace: it is never used
// again.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Do runs f in the host's namespace, on a thread of its own.
func (h *Host) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(h.ns); err != nil {
			return fmt.Errorf("enter %s: %w", h.Name, err)
		}
		if h.Cgroup != nil {
			if err := h.Cgroup.enter(); err != nil {
				return fmt.Errorf("enter %s: %w", h.Name, err)
			}
		}
		return f()
	})
}

// NS is the descriptor of the namespace, valid until the lab is closed.
func (h *Host) NS() int { return int(h.ns) }

func (h *Host) up(name string) (netlink.Link, error) {
	link, err := h.nl.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("%s: interface %s: %w", h.Name, name, err)
	}
	if err := h.nl.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("%s: interface %s up: %w", h.Name, name, err)
	}
	return link, nil
}

// settled waits until every cable carries packets. The kernel notices in the background
// that the other end is up, and drops everything until then.
func (h *Host) settled() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		links, err := h.nl.LinkList()
		if err != nil {
			return fmt.Errorf("%s: interfaces: %w", h.Name, err)
		}
		waiting := slices.ContainsFunc(links, func(l netlink.Link) bool {
			return l.Type() == "veth" && l.Attrs().OperState != netlink.OperUp
		})
		if !waiting {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: its cables are not up after 10 s", h.Name)
		}
	}
}

func (h *Host) addAddr(link netlink.Link, p netip.Prefix, scope int) error {
	h.addrs = append(h.addrs, p.Addr())
	a := &netlink.Addr{IPNet: ipNet(p), Scope: scope}
	if p.Addr().Is6() {
		a.Flags, a.Scope = unix.IFA_F_NODAD, 0
	}
	return h.nl.AddrAdd(link, a)
}

// gateway gives the node's end of a cable the addresses that its hosts send to.
func (h *Host) gateway(near netlink.Link) error {
	for _, gw := range []string{gateway4, gateway6} {
		if err := h.addAddr(near, netip.MustParsePrefix(gw), unix.RT_SCOPE_LINK); err != nil {
			return fmt.Errorf("gateway address: %w", err)
		}
	}
	return nil
}

// bridge makes the interface that pods stand behind. What it carries between them is
// not shown to iptables as well, as on nodes that route.
func (h *Host) bridge(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("%s: bridge %s: %w", h.Name, name, err)
	}
	link, err := h.up(name)
	if err != nil {
		return err
	}
	err = h.Do(func() error {
		for _, tables := range []string{"iptables", "ip6tables"} {
			err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+tables, []byte("0"), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return h.gateway(link)
}

// port makes an interface one of the bridge's, and lets a pod behind it reach itself.
func (h *Host) port(near netlink.Link, bridge string) (netlink.Link, error) {
	link, err := h.nl.LinkByName(bridge)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", bridge, err)
	}
	if err := h.nl.LinkSetMaster(near, link); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", bridge, err)
	}
	return link, h.nl.LinkSetHairpin(near, true)
}

// defaultVia sends what the node has no route for to the first of the clients of each
// family, who forwards nothing: it is lost there, and yet the node has a route.
func (h *Host) defaultVia(clients []netip.Addr, iface string) error {
	link, err := h.nl.LinkByName(iface)
	if err != nil {
		return err
	}
	done := map[bool]bool{}
	for _, c := range clients {
		if done[c.Is6()] {
			continue
		}
		done[c.Is6()] = true
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IP(c.AsSlice()), Flags: int(netlink.FLAG_ONLINK)}
		if err := h.nl.RouteAdd(r); err != nil {
			return fmt.Errorf("%s: default route: %w", h.Name, err)
		}
	}
	return nil
}

func (h *Host) close() {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.ns.IsOpen() {
		_ = h.ns.Close()
	}
}
