package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairway/proxy"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rawProxy is the file's part for the service proxy.
type rawProxy struct {
	Mode                 string          `json:"mode"`
	FallbackMode         string          `json:"fallbackMode"`
	DetectLocalMode      string          `json:"detectLocalMode"`
	ClusterCIDR          string          `json:"clusterCIDR"`
	DetectLocalInterface string          `json:"detectLocalInterface"`
	MasqueradeAll        bool            `json:"masqueradeAll"`
	MasqueradeBit        int             `json:"masqueradeBit"`
	NodePortAddresses    []string        `json:"nodePortAddresses"`
	LocalhostNodePorts   *bool           `json:"localhostNodePorts"`
	ServiceCIDRs         []string        `json:"serviceCIDRs"`
	Scheduler            string          `json:"scheduler"`
	ExternalIPs          bool            `json:"externalIPs"`
	BindAddress          string          `json:"bindAddress"`
	MetricsBindAddress   string          `json:"metricsBindAddress"`
	HealthzBindAddress   string          `json:"healthzBindAddress"`
	BindAddressHardFail  bool            `json:"bindAddressHardFail"`
	Profiling            bool            `json:"profiling"`
	Flagz                bool            `json:"flagz"`
	Statusz              bool            `json:"statusz"`
	ServiceCounters      bool            `json:"serviceCounters"`
	SyncPeriod           metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod        metav1.Duration `json:"minSyncPeriod"`
	AuditPeriod          metav1.Duration `json:"auditPeriod"`
	OOMScoreAdj          *int32          `json:"oomScoreAdj"`
	Conntrack            rawConntrack    `json:"conntrack"`
	IPVS                 rawIPVS         `json:"ipvs"`
}

type rawConntrack struct {
	MaxPerCore            int32           `json:"maxPerCore"`
	Min                   int32           `json:"min"`
	TCPEstablishedTimeout metav1.Duration `json:"tcpEstablishedTimeout"`
	TCPCloseWaitTimeout   metav1.Duration `json:"tcpCloseWaitTimeout"`
	TCPBeLiberal          bool            `json:"tcpBeLiberal"`
	UDPTimeout            metav1.Duration `json:"udpTimeout"`
	UDPStreamTimeout      metav1.Duration `json:"udpStreamTimeout"`
}

type rawIPVS struct {
	ExcludeCIDRs  []string        `json:"excludeCIDRs"`
	StrictARP     bool            `json:"strictARP"`
	TCPTimeout    metav1.Duration `json:"tcpTimeout"`
	TCPFinTimeout metav1.Duration `json:"tcpFinTimeout"`
	UDPTimeout    metav1.Duration `json:"udpTimeout"`
}

// typedProxy fills the plan's configuration.
func (c *config) typedProxy() error {
	p := c.raw.Proxy
	if err := p.check(); err != nil {
		return err
	}
	mode := proxy.Mode(p.Mode)
	c.proxy = proxy.Config{
		Node: c.raw.Node, MasqueradeAll: p.MasqueradeAll, MasqueradeBit: uint8(p.MasqueradeBit),
		RejectUnknownPorts: true, NoExternalIPs: !p.ExternalIPs,
	}.WithMode(mode)
	// By rules (or, in mode userspace, as ever) where the mode can, which is its default;
	// by listeners beside the rules where it cannot, when asked for.
	own := mode.Traits().LocalhostNodePorts
	c.proxy.LocalhostNodePorts = own && (p.LocalhostNodePorts == nil || *p.LocalhostNodePorts)
	c.proxy.LocalhostRelay = !own && p.LocalhostNodePorts != nil && *p.LocalhostNodePorts
	var err error
	if c.proxy.Scheduler, err = scheduler(mode, p.Scheduler); err != nil {
		return err
	}
	if c.proxy.ServiceCIDRs, err = prefixes("proxy.serviceCIDRs", p.ServiceCIDRs); err != nil {
		return err
	}
	if p.BindAddress != "" {
		if c.bindAddress, err = netip.ParseAddr(p.BindAddress); err != nil {
			return fmt.Errorf("proxy.bindAddress: %q is not an IP address", p.BindAddress)
		}
	}
	if err := c.typedDetector(); err != nil {
		return err
	}
	return c.typedNodePorts()
}

func (p *rawProxy) check() error {
	if _, err := modeOf(p.Mode); err != nil {
		return fmt.Errorf("proxy.mode: %w", err)
	}
	if _, err := modeOf(p.FallbackMode); p.FallbackMode != "" && err != nil {
		return fmt.Errorf("proxy.fallbackMode: %w", err)
	}
	if p.MasqueradeBit < 0 || p.MasqueradeBit > 31 {
		return fmt.Errorf("proxy.masqueradeBit: %d is not a bit of 0 to 31", p.MasqueradeBit)
	}
	if s := p.OOMScoreAdj; s != nil && (*s < -1000 || *s > 1000) {
		return fmt.Errorf("proxy.oomScoreAdj: %d is not from -1000 to 1000", *s)
	}
	if p.Conntrack.MaxPerCore < 0 || p.Conntrack.Min < 0 {
		return fmt.Errorf("proxy.conntrack: maxPerCore %d and min %d may not be negative", p.Conntrack.MaxPerCore, p.Conntrack.Min)
	}
	if _, err := prefixes("proxy.ipvs.excludeCIDRs", p.IPVS.ExcludeCIDRs); err != nil {
		return err
	}
	return p.checkDurations()
}

func (p *rawProxy) checkDurations() error {
	for _, f := range []struct {
		field string
		d     metav1.Duration
		least time.Duration
	}{
		{"syncPeriod", p.SyncPeriod, time.Second}, {"minSyncPeriod", p.MinSyncPeriod, 0}, {"auditPeriod", p.AuditPeriod, time.Second},
		{"conntrack.tcpEstablishedTimeout", p.Conntrack.TCPEstablishedTimeout, 0}, {"conntrack.tcpCloseWaitTimeout", p.Conntrack.TCPCloseWaitTimeout, 0},
		{"conntrack.udpTimeout", p.Conntrack.UDPTimeout, 0}, {"conntrack.udpStreamTimeout", p.Conntrack.UDPStreamTimeout, 0},
		{"ipvs.tcpTimeout", p.IPVS.TCPTimeout, 0}, {"ipvs.tcpFinTimeout", p.IPVS.TCPFinTimeout, 0}, {"ipvs.udpTimeout", p.IPVS.UDPTimeout, 0},
	} {
		if f.d.Duration < f.least {
			return fmt.Errorf("proxy.%s: %s is less than %s", f.field, f.d.Duration, f.least)
		}
	}
	if p.MinSyncPeriod.Duration > p.SyncPeriod.Duration {
		return fmt.Errorf("proxy.minSyncPeriod: %s is more than syncPeriod, %s", p.MinSyncPeriod.Duration, p.SyncPeriod.Duration)
	}
	return nil
}

func scheduler(mode proxy.Mode, s string) (proxy.Scheduler, error) {
	if s == "" {
		return "", nil
	}
	sch, known := proxy.ParseScheduler(s)
	if !known || !mode.Can(sch) {
		return "", fmt.Errorf("proxy.scheduler: %q is none of mode %s, which has %v", s, mode, mode.Traits().Schedulers)
	}
	return sch, nil
}

func (c *config) typedDetector() error {
	p := c.raw.Proxy
	mode := proxy.DetectMode(p.DetectLocalMode)
	if mode == "" {
		if mode = proxy.DetectNodeCIDR; p.ClusterCIDR != "" {
			mode = proxy.DetectClusterCIDR
		}
	}
	d := proxy.Detector{Mode: mode, Interface: p.DetectLocalInterface}
	var err error
	switch mode {
	case proxy.DetectNodeCIDR:
		c.detectFromNode = true
	case proxy.DetectClusterCIDR:
		if d.CIDRs, err = prefixes("proxy.clusterCIDR", strings.FieldsFunc(p.ClusterCIDR, func(r rune) bool { return r == ',' })); err != nil {
			return err
		}
		if err := onePerFamily("proxy.clusterCIDR", d.CIDRs); err != nil {
			return err
		}
	case proxy.DetectBridgeInterface, proxy.DetectInterfaceNamePrefix:
		if d.Interface == "" {
			return fmt.Errorf("proxy.detectLocalInterface: must be set for mode %s", mode)
		}
	case "none":
		d.Mode = proxy.DetectNone
	default:
		return fmt.Errorf("proxy.detectLocalMode: %q is not ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix or none", mode)
	}
	c.proxy.Detector = d
	return nil
}

// typedNodePorts reads CIDRs and kube-proxy's keywords. Primary beside CIDRs means these
// and the node's primary addresses, which the loop knows.
func (c *config) typedNodePorts() error {
	list := c.raw.Proxy.NodePortAddresses
	if len(list) == 0 && c.proxy.Mode.Traits().PrimaryNodePorts {
		list = []string{"primary"}
	}
	var rest []string
	for _, a := range list {
		switch a {
		case "primary":
			c.proxy.NodePortAddresses.Primary = true
		case "localhost":
			rest = append(rest, "127.0.0.0/8", "::1/128")
		case "all":
		default:
			rest = append(rest, a)
		}
	}
	cidrs, err := prefixes("proxy.nodePortAddresses", rest)
	if err == nil && slices.Contains(list, "all") {
		c.proxy.NodePortAddresses.Primary, cidrs = false, nil // all is what no restriction says
	}
	c.proxy.NodePortAddresses.CIDRs = cidrs
	return err
}
