package main

import (
	"strings"

	"fairway/cmd/fairway/kubeproxy"
	"fairway/model"
	"fairway/proxy"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readKubeProxy takes a KubeProxyConfiguration for the configuration of the service
// proxy, which is then this process's only job unless --roles says otherwise. What it does
// not say is as in kube-proxy: an empty mode is iptables, not this program's own default,
// so that the same file gives the same traffic.
func readKubeProxy(data []byte, raw *rawConfig) ([]kubeproxy.Warning, error) {
	k, warnings, err := kubeproxy.Read(data)
	if err != nil {
		return nil, err
	}
	if k.Mode == "" {
		k.Mode = string(proxy.IPTables)
	}
	full := k.Defaults()
	if err := full.Validate(modeList()); err != nil {
		return nil, err
	}
	warnings = append(warnings, k.Unused()...)
	warnings = append(warnings, k.UnusedInMode()...)
	raw.Roles = []string{"proxy"}
	if k.DetectLocalMode == "" && k.ClusterCIDR == "" || k.DetectLocalMode == "ClusterCIDR" && k.ClusterCIDR == "" {
		k.DetectLocalMode = "none"
	}
	k.OOMScoreAdj = full.OOMScoreAdj
	applyKubeProxy(k, raw)
	return warnings, nil
}

func modeList() []string {
	var out []string
	for _, m := range modes() {
		out = append(out, string(m.name))
	}
	return out
}

// applyKubeProxy writes what k says into raw, and leaves the rest.
func applyKubeProxy(k *kubeproxy.Config, raw *rawConfig) {
	say(&raw.Node, strings.ToLower(strings.TrimSpace(k.HostnameOverride)))
	say(&raw.Kubeconfig, k.ClientConnection.Kubeconfig)
	say(&raw.Log.Format, k.Logging.Format)
	said(&raw.Log.Verbosity, k.Logging.Verbosity)
	p := &raw.Proxy
	say(&p.Mode, k.Mode)
	say(&p.DetectLocalMode, k.DetectLocalMode)
	say(&p.ClusterCIDR, k.ClusterCIDR)
	switch k.DetectLocalMode {
	case "InterfaceNamePrefix":
		say(&p.DetectLocalInterface, k.DetectLocal.InterfaceNamePrefix)
	case "", "BridgeInterface":
		say(&p.DetectLocalInterface, k.DetectLocal.BridgeInterface)
	}
	said(&p.MasqueradeAll, k.MasqueradeAll())
	if bit := k.MasqueradeBit(); bit != nil {
		p.MasqueradeBit = int(*bit)
	}
	if len(k.NodePortAddresses) > 0 {
		p.NodePortAddresses = k.NodePortAddresses
	}
	if p.Mode == string(proxy.IPTables) && k.IPTables.LocalhostNodePorts != nil {
		p.LocalhostNodePorts = k.IPTables.LocalhostNodePorts
	}
	if p.Mode == string(proxy.IPVS) { // its own modes' schedulers are proxy.scheduler's
		say(&p.Scheduler, k.IPVS.Scheduler)
	}
	if k.BindAddress != "0.0.0.0" && k.BindAddress != "::" {
		say(&p.BindAddress, k.BindAddress)
	}
	said(&p.HealthzBindAddress, k.HealthzBindAddress)
	said(&p.MetricsBindAddress, k.MetricsBindAddress)
	said(&p.BindAddressHardFail, k.BindAddressHardFail)
	said(&p.Profiling, k.EnableProfiling)
	if k.OOMScoreAdj != nil {
		p.OOMScoreAdj = k.OOMScoreAdj
	}
	sync, least := k.Periods()
	period(&p.SyncPeriod, sync)
	period(&p.MinSyncPeriod, least)
	applyGates(k, p)
	applyKernel(k, p)
}

func applyGates(k *kubeproxy.Config, p *rawProxy) {
	for name, field := range map[string]*bool{
		"AllowServiceExternalIPs": &p.ExternalIPs, "ComponentFlagz": &p.Flagz, "ComponentStatusz": &p.Statusz,
	} {
		if on, set := k.FeatureGates[name]; set {
			*field = on
		}
	}
	if on, set := k.FeatureGates["KubeProxyNFTablesLocalhostNodePorts"]; set && p.Mode == string(proxy.NFTables) {
		p.LocalhostNodePorts = &on
	}
}

func applyKernel(k *kubeproxy.Config, p *rawProxy) {
	c := &p.Conntrack
	said(&c.MaxPerCore, k.Conntrack.MaxPerCore)
	said(&c.Min, k.Conntrack.Min)
	said(&c.TCPEstablishedTimeout, k.Conntrack.TCPEstablishedTimeout)
	said(&c.TCPCloseWaitTimeout, k.Conntrack.TCPCloseWaitTimeout)
	said(&c.TCPBeLiberal, k.Conntrack.TCPBeLiberal)
	said(&c.UDPTimeout, k.Conntrack.UDPTimeout)
	said(&c.UDPStreamTimeout, k.Conntrack.UDPStreamTimeout)
	if len(k.IPVS.ExcludeCIDRs) > 0 {
		p.IPVS.ExcludeCIDRs = k.IPVS.ExcludeCIDRs
	}
	said(&p.IPVS.StrictARP, k.IPVS.StrictARP)
	said(&p.IPVS.TCPTimeout, k.IPVS.TCPTimeout)
	said(&p.IPVS.TCPFinTimeout, k.IPVS.TCPFinTimeout)
	said(&p.IPVS.UDPTimeout, k.IPVS.UDPTimeout)
}

func say(to *string, v string) {
	if v != "" {
		*to = v
	}
}

func said[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}

// period takes zero for nothing said, as kube-proxy does.
func period(to, v *metav1.Duration) {
	if v != nil && v.Duration != 0 {
		*to = *v
	}
}

// asKubeProxy is the configuration in force in kube-proxy's form, for /configz.
func (c config) asKubeProxy() *kubeproxy.Config {
	p := c.raw.Proxy
	bit, all := int32(p.MasqueradeBit), p.MasqueradeAll
	k := kubeproxy.Config{
		BindAddress: p.BindAddress, HostnameOverride: c.raw.Node, Mode: p.Mode, ClusterCIDR: p.ClusterCIDR,
		HealthzBindAddress: &p.HealthzBindAddress, MetricsBindAddress: &p.MetricsBindAddress,
		BindAddressHardFail: &p.BindAddressHardFail, EnableProfiling: &p.Profiling,
		NodePortAddresses: p.NodePortAddresses, OOMScoreAdj: p.OOMScoreAdj,
		DetectLocalMode: string(c.proxy.Detector.Mode),
		IPTables:        kubeproxy.IPTables{MasqueradeBit: &bit, MasqueradeAll: &all, LocalhostNodePorts: p.LocalhostNodePorts, SyncPeriod: &p.SyncPeriod, MinSyncPeriod: &p.MinSyncPeriod},
		NFTables:        kubeproxy.NFTables{MasqueradeBit: &bit, MasqueradeAll: &all, SyncPeriod: &p.SyncPeriod, MinSyncPeriod: &p.MinSyncPeriod},
		IPVS: kubeproxy.IPVS{Scheduler: p.Scheduler, ExcludeCIDRs: p.IPVS.ExcludeCIDRs, StrictARP: &p.IPVS.StrictARP, SyncPeriod: &p.SyncPeriod, MinSyncPeriod: &p.MinSyncPeriod,
			TCPTimeout: &p.IPVS.TCPTimeout, TCPFinTimeout: &p.IPVS.TCPFinTimeout, UDPTimeout: &p.IPVS.UDPTimeout},
		Conntrack: kubeproxy.Conntrack{MaxPerCore: &p.Conntrack.MaxPerCore, Min: &p.Conntrack.Min, TCPEstablishedTimeout: &p.Conntrack.TCPEstablishedTimeout,
			TCPCloseWaitTimeout: &p.Conntrack.TCPCloseWaitTimeout, TCPBeLiberal: &p.Conntrack.TCPBeLiberal, UDPTimeout: &p.Conntrack.UDPTimeout, UDPStreamTimeout: &p.Conntrack.UDPStreamTimeout},
	}
	k.ClientConnection.Kubeconfig, k.Logging.Format, k.Logging.Verbosity = c.raw.Kubeconfig, c.raw.Log.Format, &c.raw.Log.Verbosity
	switch c.proxy.Detector.Mode {
	case proxy.DetectBridgeInterface:
		k.DetectLocal.BridgeInterface = p.DetectLocalInterface
	case proxy.DetectInterfaceNamePrefix:
		k.DetectLocal.InterfaceNamePrefix = p.DetectLocalInterface
	}
	full := k.Defaults()
	for gate, on := range map[string]bool{"AllowServiceExternalIPs": p.ExternalIPs, "ComponentFlagz": p.Flagz, "ComponentStatusz": p.Statusz} {
		if !on { // all of them are on by default
			full.FeatureGates[gate] = false
		}
	}
	full.IPTables.MinSyncPeriod, full.NFTables.MinSyncPeriod = &p.MinSyncPeriod, &p.MinSyncPeriod // zero is none here
	full.OOMScoreAdj = p.OOMScoreAdj                                                              // unlike kube-proxy's, it may be nobody's
	return &full
}

// warningProblems are Problems of the node: an event each, once, and a line in the log.
func warningProblems(node string, list []kubeproxy.Warning) []model.Problem {
	var out []model.Problem
	for _, w := range list {
		out = append(out, model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: node}}, Field: w.Field,
			Reason: "ConfigurationNotHonoured", Message: w.Message})
	}
	return out
}
