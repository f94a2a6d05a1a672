// Package kubeproxy reads what a node running kube-proxy already has: bytes of a
// KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) and kube-proxy's flags come
// in; a Config, errors in kube-proxy's words, and warnings that name each field which has
// no effect here go out. It never opens a file and decides nothing about the proxy.
package kubeproxy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind are those of a KubeProxyConfiguration.
const (
	APIVersion = "kubeproxy.config.k8s.io/v1alpha1"
	Kind       = "KubeProxyConfiguration"
)

// Config is a KubeProxyConfiguration of Kubernetes 1.37. What a file or flag does not say
// is nil or empty; Defaults gives it kube-proxy's value. It is written out here because the
// types of k8s.io/kube-proxy cannot tell what was said from what was not, and bring
// component-base's metrics, feature gates and OpenTelemetry along.
type Config struct {
	metav1.TypeMeta `json:",inline"`

	FeatureGates     map[string]bool  `json:"featureGates,omitempty"`
	ClientConnection ClientConnection `json:"clientConnection"`
	Logging          Logging          `json:"logging"`

	HostnameOverride            string  `json:"hostnameOverride"`
	BindAddress                 string  `json:"bindAddress"`
	HealthzBindAddress          *string `json:"healthzBindAddress"`
	MetricsBindAddress          *string `json:"metricsBindAddress"`
	BindAddressHardFail         *bool   `json:"bindAddressHardFail"`
	EnableProfiling             *bool   `json:"enableProfiling"`
	ShowHiddenMetricsForVersion string  `json:"showHiddenMetricsForVersion"`

	Mode      string    `json:"mode"`
	IPTables  IPTables  `json:"iptables"`
	IPVS      IPVS      `json:"ipvs"`
	NFTables  NFTables  `json:"nftables"`
	Winkernel Winkernel `json:"winkernel"`

	DetectLocalMode   string           `json:"detectLocalMode"`
	DetectLocal       DetectLocal      `json:"detectLocal"`
	ClusterCIDR       string           `json:"clusterCIDR"`
	NodePortAddresses []string         `json:"nodePortAddresses"`
	OOMScoreAdj       *int32           `json:"oomScoreAdj"`
	Conntrack         Conntrack        `json:"conntrack"`
	ConfigSyncPeriod  *metav1.Duration `json:"configSyncPeriod"`

	PortRange           string `json:"portRange"`
	WindowsRunAsService bool   `json:"windowsRunAsService,omitempty"`
}

// ClientConnection says how the API server is reached.
type ClientConnection struct {
	Kubeconfig         string  `json:"kubeconfig"`
	AcceptContentTypes string  `json:"acceptContentTypes"`
	ContentType        string  `json:"contentType"`
	QPS                float32 `json:"qps"`
	Burst              int32   `json:"burst"`
}

// Logging is the part of k8s.io/component-base's LoggingConfiguration that is looked at;
// the rest is kept as it came.
type Logging struct {
	Format         string  `json:"format,omitempty"`
	FlushFrequency any     `json:"flushFrequency,omitempty"`
	Verbosity      *uint32 `json:"verbosity,omitempty"`
	VModule        any     `json:"vmodule,omitempty"`
	Options        any     `json:"options,omitempty"`
}

// IPTables is for the iptables mode, and in part for all.
type IPTables struct {
	MasqueradeBit      *int32           `json:"masqueradeBit"`
	MasqueradeAll      *bool            `json:"masqueradeAll"`
	LocalhostNodePorts *bool            `json:"localhostNodePorts"`
	SyncPeriod         *metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod      *metav1.Duration `json:"minSyncPeriod"`
}

// IPVS is for the ipvs mode.
type IPVS struct {
	SyncPeriod    *metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod *metav1.Duration `json:"minSyncPeriod"`
	Scheduler     string           `json:"scheduler"`
	ExcludeCIDRs  []string         `json:"excludeCIDRs"`
	StrictARP     *bool            `json:"strictARP"`
	TCPTimeout    *metav1.Duration `json:"tcpTimeout"`
	TCPFinTimeout *metav1.Duration `json:"tcpFinTimeout"`
	UDPTimeout    *metav1.Duration `json:"udpTimeout"`
}

// NFTables is for the nftables mode.
type NFTables struct {
	MasqueradeBit *int32           `json:"masqueradeBit"`
	MasqueradeAll *bool            `json:"masqueradeAll"`
	SyncPeriod    *metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod *metav1.Duration `json:"minSyncPeriod"`
}

// Conntrack is what the kernel's connection tracking is set to.
type Conntrack struct {
	MaxPerCore            *int32           `json:"maxPerCore"`
	Min                   *int32           `json:"min"`
	TCPEstablishedTimeout *metav1.Duration `json:"tcpEstablishedTimeout"`
	TCPCloseWaitTimeout   *metav1.Duration `json:"tcpCloseWaitTimeout"`
	TCPBeLiberal          *bool            `json:"tcpBeLiberal"`
	UDPTimeout            *metav1.Duration `json:"udpTimeout"`
	UDPStreamTimeout      *metav1.Duration `json:"udpStreamTimeout"`
}

// DetectLocal is the part of detectLocalMode that needs a name.
type DetectLocal struct {
	BridgeInterface     string `json:"bridgeInterface"`
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// Winkernel is for Windows.
type Winkernel struct {
	NetworkName           string `json:"networkName"`
	SourceVip             string `json:"sourceVip"`
	EnableDSR             bool   `json:"enableDSR"`
	RootHnsEndpointName   string `json:"rootHnsEndpointName"`
	ForwardHealthCheckVip bool   `json:"forwardHealthCheckVip"`
}

// Periods are the sync periods of the mode in the Config.
func (c *Config) Periods() (sync, least *metav1.Duration) {
	switch c.Mode {
	case "ipvs":
		return c.IPVS.SyncPeriod, c.IPVS.MinSyncPeriod
	case "nftables":
		return c.NFTables.SyncPeriod, c.NFTables.MinSyncPeriod
	}
	return c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod
}

// MasqueradeAll is that of the mode in the Config; nftables has its own.
func (c *Config) MasqueradeAll() *bool {
	if c.Mode == "nftables" {
		return c.NFTables.MasqueradeAll
	}
	return c.IPTables.MasqueradeAll
}

// MasqueradeBit is that of the mode in the Config; nftables has its own.
func (c *Config) MasqueradeBit() *int32 {
	if c.Mode == "nftables" {
		return c.NFTables.MasqueradeBit
	}
	return c.IPTables.MasqueradeBit
}
