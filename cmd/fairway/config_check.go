package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairway/dns"

	"k8s.io/apimachinery/pkg/util/validation"
)

// longestTTL is a week, seconds: what resolvers keep at most (RFC 8767 section 4).
const longestTTL = 604800

// check finds values that read well and would do harm, or nothing, later.
func (r rawConfig) check() error {
	if len(r.Roles) == 0 {
		return errors.New("roles: none is left; want some of proxy, dns, lb, ingress")
	}
	if bad := validation.IsDNS1123Subdomain(r.Node); r.Node != "" && len(bad) > 0 {
		return fmt.Errorf("node: %q is no name a Node can have: %s", r.Node, bad[0])
	}
	if bad := validation.IsDNS1123Label(r.LoadBalancer.LeaseNamespace); len(bad) > 0 {
		return fmt.Errorf("loadBalancer.leaseNamespace: %q is no namespace: %s", r.LoadBalancer.LeaseNamespace, bad[0])
	}
	return errors.Join(r.checkDNS(), r.checkIngress(), r.checkAddresses())
}

func (r rawConfig) checkDNS() error {
	if bad := validation.IsDNS1123Subdomain(strings.TrimSuffix(r.DNS.Domain, ".")); len(bad) > 0 {
		return fmt.Errorf("dns.domain: %q is no domain: %s", r.DNS.Domain, bad[0])
	}
	for field, seconds := range map[string]int{"dns.ttl": r.DNS.TTL, "dns.negativeTTL": r.DNS.NegativeTTL} {
		if seconds < 0 || seconds > longestTTL {
			return fmt.Errorf("%s: %d is not from 0 to %d seconds", field, seconds, longestTTL)
		}
	}
	for field, n := range map[string]int{"dns.maxConcurrent": r.DNS.MaxConcurrent, "dns.cacheTTL": r.DNS.CacheTTL, "dns.serveStale": r.DNS.ServeStale,
		"dns.queriesPerSecond": r.DNS.QueriesPerSecond, "dns.largePerSecond": r.DNS.LargePerSecond + 1,
		"dns.maxTCPConnections": r.DNS.MaxTCPConnections - 1, "dns.sockets": r.DNS.Sockets - 1} {
		if n < 0 || n > longestTTL {
			return fmt.Errorf("%s: out of range (fairway run --help-config says what it may be)", field)
		}
	}
	if n := r.DNS.Sockets; n > 64 {
		return fmt.Errorf("dns.sockets: %d is more than 64", n)
	}
	if r.DNS.LargePerSecond == 0 {
		return errors.New("dns.largePerSecond: 0 would answer nobody at length; want a number, or -1 for no limit")
	}
	for field, addr := range map[string]string{"dns.healthAddress": r.DNS.HealthAddress, "dns.readyAddress": r.DNS.ReadyAddress, "dns.metricsAddress": r.DNS.MetricsAddress} {
		if addr == "" {
			continue
		}
		if _, err := listen(field, []string{addr}); err != nil {
			return err
		}
	}
	for _, u := range r.DNS.Upstreams {
		if _, err := dns.ParseUpstream(u); err != nil && !strings.HasPrefix(u, "/") {
			return fmt.Errorf("dns.upstreams: %q is not ADDRESS, ADDRESS:PORT or the path of a resolv.conf", u)
		}
	}
	return nil
}

func (r rawConfig) checkIngress() error {
	i := r.Ingress
	if slices.Contains(r.Roles, "ingress") && len(i.Controllers)+len(i.ClassAnnotations) == 0 && !i.WatchWithoutClass {
		return errors.New("ingress.controllers: with neither these nor classAnnotations nor watchWithoutClass no Ingress is served")
	}
	// Both listen with SO_REUSEPORT: the kernel would deal connections to either.
	if plain, secure := portOf(i.HTTP), portOf(i.HTTPS); plain == secure && plain > 0 && sameHost(i.HTTP, i.HTTPS) {
		return fmt.Errorf("ingress.https: %q is the address of ingress.http too", i.HTTPS)
	}
	return nil
}

func (r rawConfig) checkAddresses() error {
	for field, a := range map[string]string{
		"proxy.metricsBindAddress": r.Proxy.MetricsBindAddress, "proxy.healthzBindAddress": r.Proxy.HealthzBindAddress,
		"ingress.http": r.Ingress.HTTP, "ingress.https": r.Ingress.HTTPS,
	} {
		if a != "" && portOf(a) < 0 {
			return fmt.Errorf("%s: %q is not HOST:PORT with a port of 0 to 65535", field, a)
		}
	}
	return nil
}

// portOf is the port of HOST:PORT, -1 when it has none.
func portOf(addr string) int {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return -1
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return -1
	}
	return int(port)
}

func sameHost(a, b string) bool {
	x, _, _ := net.SplitHostPort(a)
	y, _, _ := net.SplitHostPort(b)
	return x == y || everyHost(x) || everyHost(y)
}

func everyHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// onePerFamily refuses a second range of one family, which nobody would look at.
func onePerFamily(field string, list []netip.Prefix) error {
	for i, p := range list {
		if slices.ContainsFunc(list[:i], func(q netip.Prefix) bool { return q.Addr().Is6() == p.Addr().Is6() }) {
			return fmt.Errorf("%s: %s is a second range of its family; one each is used", field, p)
		}
	}
	return nil
}
