package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairway/dns"
	"fairway/ingress"
	"fairway/lb"
	"fairway/model"

	wire "github.com/miekg/dns"
)

func (c config) dns() dns.Config {
	if c.corefile != nil {
		return c.ofCorefile(c.corefile)
	}
	return c.ownDNS()
}

// ownDNS is what the fields of the dns section say.
func (c config) ownDNS() dns.Config {
	d := dns.DefaultConfig()
	d.Domain, d.TTL, d.NegativeTTL = c.raw.DNS.Domain, uint32(c.raw.DNS.TTL), uint32(c.raw.DNS.NegativeTTL)
	d.Pods, d.CompleteSvc = dns.PodMode(c.raw.DNS.Pods), c.raw.DNS.CompleteSvc
	d.AutoPath, d.HostSearch = c.raw.DNS.AutoPath, hostSearch(c.raw.DNS.ResolvConf)
	d.DNSService = model.Name{Namespace: "fairway-system", Name: "kube-dns"}
	return d
}

// hostSearch are the search domains kubelet puts behind the cluster's; none when the file
// cannot be read.
func hostSearch(path string) []string {
	conf, err := wire.ClientConfigFromFile(path)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(conf.Search, func(s string) bool { return strings.Trim(s, ".") == "" })
}

func (c config) forward() dns.ForwardConfig {
	if c.corefile != nil {
		return c.corefile.forward
	}
	ups := c.raw.DNS.Upstreams
	if len(ups) == 0 {
		ups = []string{c.raw.DNS.ResolvConf}
	}
	f := dns.DefaultForwardConfig()
	r := &f.Routes[0]
	r.Upstreams, r.MaxConcurrent = ups, c.raw.DNS.MaxConcurrent
	f.Health, f.Ready, f.Metrics = c.raw.DNS.HealthAddress, c.raw.DNS.ReadyAddress, c.raw.DNS.MetricsAddress
	ttl := time.Duration(c.raw.DNS.CacheTTL) * time.Second
	r.Cache.Success.MaxTTL, r.Cache.Denial.MaxTTL = ttl, ttl
	r.Cache.ServeStale = time.Duration(c.raw.DNS.ServeStale) * time.Second
	r.Cache.Prefetch, r.Cache.PrefetchGap, r.Cache.PrefetchShare = 10, time.Minute, 10
	return f
}

func (c config) ingress() ingress.Config {
	i := c.raw.Ingress
	return ingress.Config{
		Controllers: i.Controllers, ClassNames: i.ClassAnnotations, WithoutClass: i.WatchWithoutClass,
		DefaultCertificate: c.defaultCert, AdmitDefaultClass: c.fromFiles,
	}
}

func (c config) lb() lb.Config { return lb.Config{Classes: c.raw.LoadBalancer.Classes} }

// listen turns HOST:PORT, or :PORT for every address of both families, into addresses.
func listen(field string, list []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, s := range list {
		host, portText, err := net.SplitHostPort(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not HOST:PORT", field, s)
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: %q has no port number", field, s)
		}
		hosts := []string{host}
		if host == "" {
			hosts = []string{"0.0.0.0", "::"}
		}
		for _, h := range hosts {
			a, err := netip.ParseAddr(h)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is not an IP address", field, h)
			}
			out = append(out, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	return out, nil
}

// apiServers is the address of the API server's URL; a name has none that stays.
func apiServers(url string) []netip.AddrPort {
	_, host, ok := strings.Cut(url, "://")
	if !ok {
		host = url
	}
	host, _, _ = strings.Cut(host, "/")
	if a, err := netip.ParseAddrPort(host); err == nil {
		return []netip.AddrPort{a}
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(a, 443)}
	}
	return nil
}
