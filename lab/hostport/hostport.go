// Package hostport gives Pods their host ports: in come a Pod's addresses and the ports it asks for on its node, out
// goes one nftables table of our own in the node's network namespace. It never touches another table; its hooks come
// before those of service proxies, so a host port is taken first, as other runtimes do it.
package hostport

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Port is one port of the node that leads to a Pod.
type Port struct {
	Protocol uint8      // IP protocol number
	HostIP   netip.Addr // the zero Addr means every address of the node
	HostPort uint16
	PodPort  uint16
}

// Pod is a Pod with host ports.
type Pod struct {
	Device string // the node's end of the Pod's interface
	IPs    []netip.Addr
	Ports  []Port
}

// Table holds the host ports of one node. It is safe for concurrent use.
type Table struct {
	mu   sync.Mutex
	pods map[string]Pod
}

// New removes what an earlier process left.
func New() (*Table, error) {
	t := &Table{pods: map[string]Pod{}}
	if err := remove(); err != nil {
		return nil, fmt.Errorf("host ports: %w", err)
	}
	return t, nil
}

// Add opens the ports of a Pod, which may have none.
func (t *Table) Add(id string, pod Pod) error {
	if len(pod.Ports) == 0 {
		return nil
	}
	// A packet from 127.0.0.1 leaves, and its answer comes back, through the Pod's own interface.
	localnet := "/proc/sys/net/ipv4/conf/" + pod.Device + "/route_localnet"
	if err := os.WriteFile(localnet, []byte("1"), 0); err != nil {
		return fmt.Errorf("host ports: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[id] = pod
	if err := t.apply(pod); err != nil {
		delete(t.pods, id)
		return err
	}
	return nil
}

// Remove closes the ports of a Pod. It may be repeated.
func (t *Table) Remove(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	pod, ok := t.pods[id]
	if !ok {
		return nil
	}
	delete(t.pods, id)
	return t.apply(pod)
}

// Close removes the table.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.pods)
	return remove()
}

// apply writes the whole table, then ends the flows of the Pod that changed: a UDP flow would go on to where its first
// packet went.
func (t *Table) apply(changed Pod) error {
	if err := write(t.rules()); err != nil {
		return fmt.Errorf("host ports: %w", err)
	}
	if err := endFlows(changed); err != nil {
		return fmt.Errorf("host ports: end old flows: %w", err)
	}
	return nil
}

// rule leads one port to one address.
type rule struct {
	Port
	to netip.Addr
}

// rules are sorted: the ports of one address of the node come before those of all addresses.
func (t *Table) rules() []rule {
	var out []rule
	for _, pod := range t.pods {
		for _, port := range pod.Ports {
			for _, ip := range pod.IPs {
				if r, ok := pair(port, ip); ok {
					out = append(out, r)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b rule) int {
		if a.HostIP.IsValid() != b.HostIP.IsValid() {
			if a.HostIP.IsValid() {
				return -1
			}
			return 1
		}
		if c := a.to.Compare(b.to); c != 0 {
			return c
		}
		return int(a.HostPort) - int(b.HostPort)
	})
	return out
}

// pair joins a port to a Pod address of its family; 0.0.0.0 and :: are all addresses of one family.
func pair(port Port, ip netip.Addr) (rule, bool) {
	if port.HostIP.IsValid() && port.HostIP.Is4() != ip.Is4() {
		return rule{}, false
	}
	if port.HostIP.IsValid() && port.HostIP.IsUnspecified() {
		port.HostIP = netip.Addr{}
	}
	return rule{Port: port, to: ip}, true
}

func endFlows(pod Pod) error {
	var errs []error
	for _, port := range pod.Ports {
		if port.Protocol != unix.IPPROTO_UDP {
			continue
		}
		for _, ip := range pod.IPs {
			family := netlink.InetFamily(unix.AF_INET)
			if ip.Is6() {
				family = unix.AF_INET6
			}
			filter := &netlink.ConntrackFilter{}
			err := errors.Join(
				filter.AddProtocol(port.Protocol),
				filter.AddPort(netlink.ConntrackOrigDstPort, port.HostPort),
			)
			if err == nil {
				_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
