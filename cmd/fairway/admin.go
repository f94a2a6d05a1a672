package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"fairway/loop"
	"fairway/proxy"
	"fairway/server/admin"

	"github.com/spf13/pflag"
)

// kubernetesVersion is the one whose kube-proxy the ports speak like.
const kubernetesVersion = "1.37"

func (d *daemon) openAdmin() {
	d.ports = &admin.HealthPorts{Healthy: d.health.Healthy, Failed: d.healthPortFailed}
	d.loop.Stages = append(d.loop.Stages, &nodeState{d: d})
	p := d.cfg.raw.Proxy
	d.countServices()
	m := &admin.Metrics{
		Registry: d.registry, Mode: d.mode, Ready: d.isReady,
		Config:       map[string]any{"kubeproxy.config.k8s.io": d.cfg.asKubeProxy(), "fairway": d.cfg.raw},
		Programs:     map[string]func() string{"plan": d.planText, "proxy": d.programText},
		Profile:      p.Profiling,
		SetVerbosity: func(n uint32) { d.setVerbosity(n) },
	}
	if p.Flagz {
		m.Flags = flagValues(d.cfg.flags)
	}
	if p.Statusz {
		m.Status = &admin.Status{Started: d.started, Version: version, Emulates: kubernetesVersion, Now: time.Now}
	}
	d.listen("proxy.metricsBindAddress", p.MetricsBindAddress, m.Handler())
	d.listen("proxy.healthzBindAddress", p.HealthzBindAddress, d.health.HealthHandler())
}

func (d *daemon) setVerbosity(n uint32) {
	if d.cfg.level != nil {
		d.cfg.level.Set(levelOf(n))
	}
}

func flagValues(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	if fs != nil {
		fs.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
	}
	return out
}

// countServices adds the collectors of what the backend counts, if it counts.
func (d *daemon) countServices() {
	if c, ok := d.loop.Backend.(loop.Counter); ok && d.cfg.raw.Proxy.ServiceCounters {
		d.registry.MustRegister(admin.NewServiceCounts(c.Counters))
	}
	if b, ok := d.loop.Backend.(*loop.IPTables); ok {
		d.registry.MustRegister(admin.NewAccounts(b.Accounts))
	}
	if c, ok := d.loop.Backend.(loop.TableCounter); ok {
		d.registry.MustRegister(admin.NewTableCounts(func() []admin.TableCount {
			var out []admin.TableCount
			for _, t := range c.TableCounts() {
				out = append(out, admin.TableCount(t))
			}
			return out
		}))
	}
}

func (d *daemon) listen(field, addr string, h http.Handler) {
	if addr == "" {
		return
	}
	d.jobs = append(d.jobs, func(ctx context.Context) error {
		if d.cfg.raw.Proxy.BindAddressHardFail {
			return admin.ServeOnce(ctx, addr, h, func() {})
		}
		admin.Serve(ctx, addr, h, func(err error) {
			if err != nil {
				slog.Error(field, "err", err)
			}
		})
		return nil
	})
}

// healthPortFailed has the next pass tell it.
func (d *daemon) healthPortFailed(c proxy.HealthCheck, err error) {
	if err != nil {
		slog.Error("healthCheckNodePort not served", "service", c.Service, "port", c.Port, "err", err)
	}
	d.loop.Wake()
}

// healthAddrs are the addresses healthCheckNodePorts answer on: NodePorts' own. None are
// all, also when no address of the node is among those asked for, as in kube-proxy.
func healthAddrs(c proxy.Config) []netip.Addr {
	n := c.NodePortAddresses
	var out []netip.Addr
	if n.Primary {
		for _, v6 := range []bool{false, true} {
			if i := slices.IndexFunc(c.NodeIPs, func(a netip.Addr) bool { return a.Is6() == v6 }); i >= 0 && slices.Contains(c.LocalAddrs, c.NodeIPs[i]) {
				out = append(out, c.NodeIPs[i])
			}
		}
		return out
	}
	if len(n.CIDRs) == 0 {
		return nil
	}
	limited := map[bool]bool{}
	for _, p := range n.CIDRs {
		limited[p.Addr().Is6()] = true
	}
	for _, a := range c.LocalAddrs { // a family of which nothing is said has all its addresses
		if !limited[a.Is6()] || slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	return out
}

func familyNames() []string {
	if ipv6() {
		return []string{"IPv4", "IPv6"}
	}
	return []string{"IPv4"}
}
