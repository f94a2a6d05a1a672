package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	routeLocalnet = "/proc/sys/net/ipv4/conf/all/route_localnet"
	tcpBeLiberal  = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
)

// RouteLocalnet lets packets to 127.0.0.0/8 be routed, which NodePorts on localhost
// need. Rules must keep others out before (CVE-2020-8558).
func (t *IPTables) RouteLocalnet() error {
	err := SetSysctl(t.netns, routeLocalnet, "1")
	if err != nil {
		return fmt.Errorf("NodePorts on localhost: %w", err)
	}
	return nil
}

// Liberal tells whether conntrack takes out-of-window packets as valid, so that none
// need to be dropped as INVALID.
func (t *IPTables) Liberal() (bool, error) {
	var value []byte
	err := inNetNS(t.netns, func() (err error) {
		value, err = os.ReadFile(tcpBeLiberal)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // conntrack is not loaded yet: the kernel's default is strict
	}
	if err != nil {
		return false, fmt.Errorf("conntrack: %w", err)
	}
	return strings.TrimSpace(string(value)) != "0", nil
}
