package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"fairway/bench/apiserver"
	"fairway/test/netlab"

	"github.com/vishvananda/netlink"
)

// stage is a node with a client on one side and a server, who has every endpoint's
// address, on the other; and the node's API server. No route leads out of it.
type stage struct {
	lab      *netlab.Lab
	api      *apiserver.Server
	web      *http.Server
	url      string
	backend  *backend
	dial     *dialer
	room     *room // of eBPF mode, else nil
	services int
}

func newStage(services, endpoints int) (*stage, error) {
	s := &stage{api: apiserver.New()}
	var err error
	s.lab, err = netlab.New(netlab.Layout{
		NodeAddrs: []netip.Addr{netip.MustParseAddr(nodeAddr)},
		Pods:      []netlab.Pod{{Addrs: []netip.Addr{netip.MustParseAddr(clientAddr)}}},
		Remote:    []netip.Addr{netip.MustParseAddr(serverAddr)},
	})
	if err != nil {
		return nil, err
	}
	if err := s.open(services, endpoints); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) open(services, endpoints int) error {
	if err := s.wire(); err != nil {
		return err
	}
	if err := s.load(services, endpoints); err != nil {
		return err
	}
	err := s.lab.Node.Do(func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.url = "http://" + l.Addr().String()
		s.web = &http.Server{Handler: s.api}
		go func() { _ = s.web.Serve(l) }()
		return nil
	})
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	if s.backend, err = serve(s.lab.Remote[0]); err != nil {
		return err
	}
	s.dial, err = newDialer(s.lab.Pods[0])
	return err
}

// wire sends every endpoint's address to the server, who takes them all as its own. A
// gateway spares the node a neighbour entry for each.
func (s *stage) wire() error {
	_, pods, err := net.ParseCIDR(backends)
	if err != nil {
		return err
	}
	err = s.lab.Remote[0].Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		// Table 255 holds what is local.
		return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: pods, Type: 2, Table: 255, Scope: netlink.SCOPE_HOST})
	})
	if err != nil {
		return fmt.Errorf("server's addresses: %w", err)
	}
	err = s.lab.Node.Do(func() error {
		far, err := netlink.LinkByName("far0")
		if err != nil {
			return err
		}
		// The connections of the benchmark end with a reset: none is worth remembering.
		_ = os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", []byte("1"), 0)
		return netlink.RouteAdd(&netlink.Route{LinkIndex: far.Attrs().Index, Dst: pods, Gw: net.ParseIP(serverAddr), Flags: int(netlink.FLAG_ONLINK)})
	})
	if err != nil {
		return fmt.Errorf("route to the endpoints: %w", err)
	}
	return nil
}

// translate has the kernel translate every address of the Services to the one of the same
// place among the endpoints: one rule, and no proxy.
func (s *stage) translate() error {
	return s.lab.Node.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(`table ip floor {
	chain nat {
		type nat hook prerouting priority -100
		ip daddr ` + serviceCIDR + ` dnat ip prefix to ip daddr map { ` + serviceCIDR + ` : ` + mirrored + ` }
	}
}
`)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("one rule that translates: %w: %s", err, out)
		}
		return nil
	})
}

func (s *stage) load(services, endpoints int) error {
	for _, o := range []apiserver.Object{node(), serviceRange()} {
		if err := s.api.Put(o); err != nil {
			return err
		}
	}
	for i := range services {
		if err := s.add(i, endpoints); err != nil {
			return err
		}
	}
	s.services = services
	return nil
}

// add is a Service and its endpoints. The endpoints come first, which spares a proxy that
// pauses between syncs one with a Service without any.
func (s *stage) add(i, endpoints int) error {
	if err := s.api.Put(slice(i, endpoints)); err != nil {
		return err
	}
	return s.api.Put(service(i))
}

func (s *stage) remove(i, endpoints int) error {
	if err := s.api.Delete(service(i)); err != nil {
		return err
	}
	return s.api.Delete(slice(i, endpoints))
}

func (s *stage) close() {
	if s.web != nil {
		_ = s.web.Close()
	}
	if s.dial != nil {
		s.dial.close()
	}
	if s.backend != nil {
		s.backend.close()
	}
	s.lab.Close()
	if s.room != nil {
		s.room.close()
	}
}
