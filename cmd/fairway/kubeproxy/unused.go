package kubeproxy

import (
	"fmt"
	"maps"
	"slices"
)

// gates are the feature gates of Kubernetes 1.37 that kube-proxy looks at and this program
// follows, with their defaults.
func gates() map[string]bool {
	return map[string]bool{
		"AllowServiceExternalIPs": true, "KubeProxyIPVS": true, "KubeProxyNFTablesLocalhostNodePorts": false,
		"ComponentFlagz": true, "ComponentStatusz": true, "AllAlpha": false, "AllBeta": true,
	}
}

// Gate tells whether a feature gate is on.
func (c *Config) Gate(name string) bool {
	if on, said := c.FeatureGates[name]; said {
		return on
	}
	return gates()[name]
}

// Unused names every field that is said and has no effect here, or another one than in
// kube-proxy, and what happens instead. c is as read, without Defaults.
func (c *Config) Unused() []Warning {
	var out []Warning
	add := func(said bool, field, format string, args ...any) {
		if said {
			out = append(out, Warning{field, fmt.Sprintf(format, args...)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		_, known := gates()[name]
		add(!known, "featureGates."+name, "no feature of this program goes by this gate; it is ignored")
	}
	add(c.FeatureGates["AllAlpha"], "featureGates.AllAlpha", "turns on nothing here: name KubeProxyNFTablesLocalhostNodePorts itself")
	k := c.ClientConnection
	add(k.AcceptContentTypes != "", "clientConnection.acceptContentTypes", "ignored: protobuf is asked for, JSON where a server has no protobuf")
	add(k.ContentType != "" && k.ContentType != "application/vnd.kubernetes.protobuf", "clientConnection.contentType", "ignored: protobuf is sent, JSON where a server has no protobuf")
	add(k.QPS != 0 && k.QPS != 5, "clientConnection.qps", "ignored: watches are not counted, and events and status keep to a rate of their own")
	add(k.Burst != 0 && k.Burst != 10, "clientConnection.burst", "ignored, like clientConnection.qps")
	add(c.ConfigSyncPeriod != nil && c.ConfigSyncPeriod.Duration != 0, "configSyncPeriod", "ignored: objects come by watch, and the kernel is compared with them every proxy.auditPeriod")
	add(c.PortRange != "", "portRange", "ignored, as in kube-proxy since the userspace mode left it")
	add(c.WindowsRunAsService, "windowsRunAsService", "ignored: Linux only")
	add(c.Winkernel != Winkernel{}, "winkernel", "ignored: Linux only")
	add(c.ShowHiddenMetricsForVersion != "", "showHiddenMetricsForVersion", "ignored: no metric is hidden")
	return append(out, c.Logging.unused()...)
}

func (l *Logging) unused() []Warning {
	var out []Warning
	for field, said := range map[string]bool{
		"logging.format": l.Format != "" && l.Format != "text" && l.Format != "json", "logging.vmodule": says(l.VModule),
		"logging.options": says(l.Options),
	} {
		if said {
			out = append(out, Warning{field, "ignored: log lines are key=value text, or json with format json"})
		}
	}
	slices.SortFunc(out, func(a, b Warning) int { return slices.Compare([]string{a.Field}, []string{b.Field}) })
	return out
}

// says tells whether there is anything but zeros in a value, however deep.
func says(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			if says(inner) {
				return true
			}
		}
		return false
	case string:
		return v != "" && v != "0"
	}
	if list, ok := v.([]any); ok {
		return len(list) > 0
	}
	return v != nil && v != false && v != float64(0) && v != int64(0)
}

// UnusedInMode names the fields of a file that are for another mode, of the proxy or of
// telling pods, than the one in it.
func (c *Config) UnusedInMode() []Warning {
	var out []Warning
	add := func(said bool, field, message string) {
		if said {
			out = append(out, Warning{field, message})
		}
	}
	if c.Mode == "nftables" {
		add(isTrue(c.IPTables.MasqueradeAll) && !isTrue(c.NFTables.MasqueradeAll), "iptables.masqueradeAll", "not for mode nftables, which has nftables.masqueradeAll")
	} else {
		add(isTrue(c.NFTables.MasqueradeAll) && !isTrue(c.IPTables.MasqueradeAll), "nftables.masqueradeAll", "for mode nftables only; the others have iptables.masqueradeAll")
	}
	if c.Mode != "ipvs" {
		add(c.IPVS.Scheduler != "", "ipvs.scheduler", "for mode ipvs only; every mode has proxy.scheduler in Fairway's own configuration")
		add(len(c.IPVS.ExcludeCIDRs) > 0, "ipvs.excludeCIDRs", "for mode ipvs only")
		add(isTrue(c.IPVS.StrictARP), "ipvs.strictARP", "for mode ipvs only: in the others no address is on an interface that could answer ARP")
	}
	if c.DetectLocalMode != "" && c.DetectLocalMode != "ClusterCIDR" {
		add(c.ClusterCIDR != "", "clusterCIDR", "not looked at with detectLocalMode "+c.DetectLocalMode)
	} else {
		add(c.ClusterCIDR == "", "clusterCIDR", "empty: as in kube-proxy no pod counts as this node's own, so traffic to cluster addresses from outside is not masqueraded; say clusterCIDR or detectLocalMode NodeCIDR")
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }
