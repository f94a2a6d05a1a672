package main

import (
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"fairway/model"
	"fairway/proxy"

	"sigs.k8s.io/yaml"
)

// defaultConfig is the documented default, the one source of defaults.
//
//go:embed config.yaml
var defaultConfig []byte

// rawConfig is the file as written; config.yaml describes every field.
type rawConfig struct {
	Roles      []string `json:"roles"`
	Node       string   `json:"node"`
	Kubeconfig string   `json:"kubeconfig"`
	Server     string   `json:"server"`
	Manifests  string   `json:"manifests"`
	Proxy      struct {
		Mode                 string   `json:"mode"`
		DetectLocalMode      string   `json:"detectLocalMode"`
		ClusterCIDR          string   `json:"clusterCIDR"`
		DetectLocalInterface string   `json:"detectLocalInterface"`
		MasqueradeAll        bool     `json:"masqueradeAll"`
		MasqueradeBit        int      `json:"masqueradeBit"`
		NodePortAddresses    []string `json:"nodePortAddresses"`
		LocalhostNodePorts   bool     `json:"localhostNodePorts"`
		ServiceCIDRs         []string `json:"serviceCIDRs"`
		Scheduler            string   `json:"scheduler"`
		MetricsBindAddress   string   `json:"metricsBindAddress"`
		HealthzBindAddress   string   `json:"healthzBindAddress"`
	} `json:"proxy"`
	DNS struct {
		Domain      string   `json:"domain"`
		Listen      []string `json:"listen"`
		TTL         int      `json:"ttl"`
		NegativeTTL int      `json:"negativeTTL"`
		Pods        string   `json:"pods"`
		Upstreams   []string `json:"upstreams"`
		ResolvConf  string   `json:"resolvConf"`
		CompleteSvc bool     `json:"completeSvc"`
	} `json:"dns"`
	LoadBalancer struct {
		Classes        []string `json:"classes"`
		LeaseNamespace string   `json:"leaseNamespace"`
		StateFile      string   `json:"stateFile"`
		Interfaces     []string `json:"interfaces"`
	} `json:"loadBalancer"`
	Ingress struct {
		HTTP               string   `json:"http"`
		HTTPS              string   `json:"https"`
		Controllers        []string `json:"controllers"`
		ClassAnnotations   []string `json:"classAnnotations"`
		WatchWithoutClass  bool     `json:"watchWithoutClass"`
		DefaultCertificate string   `json:"defaultCertificate"`
		PublishService     string   `json:"publishService"`
		TrustedProxies     []string `json:"trustedProxies"`
	} `json:"ingress"`
}

// config is the file read and checked.
type config struct {
	raw            rawConfig
	roles          map[string]bool
	proxy          proxy.Config
	detectFromNode bool // NodeCIDR mode: the detector's ranges are the Node's
	trustedProxies []netip.Prefix
	publishService model.Name
	defaultCert    model.Name
	// fromFiles: nobody has defaulted or admitted the objects.
	fromFiles bool
}

// readConfig reads the file over the defaults; an empty path gives the defaults.
func readConfig(path string) (rawConfig, error) {
	var raw rawConfig
	if err := yaml.UnmarshalStrict(defaultConfig, &raw); err != nil {
		return raw, fmt.Errorf("built-in configuration: %w", err)
	}
	if path == "" {
		return raw, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return raw, fmt.Errorf("configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &raw); err != nil {
		return raw, fmt.Errorf("configuration %s: %w (fairway run --help-config shows every field)", path, err)
	}
	return raw, nil
}

// typed checks the raw configuration; every error names the field and what it may be.
func (r rawConfig) typed() (config, error) {
	c := config{raw: r, roles: map[string]bool{}, fromFiles: r.Manifests != ""}
	if err := r.check(); err != nil {
		return c, err
	}
	for _, role := range r.Roles {
		if !slices.Contains([]string{"proxy", "dns", "lb", "ingress"}, role) {
			return c, fmt.Errorf("roles: %q is not one of proxy, dns, lb, ingress", role)
		}
		c.roles[role] = true
	}
	if r.Node == "" {
		c.raw.Node = nodeName()
	}
	p := r.Proxy
	if _, err := modeOf(p.Mode); err != nil {
		return c, fmt.Errorf("proxy.mode: %w", err)
	}
	if p.MasqueradeBit < 0 || p.MasqueradeBit > 31 {
		return c, fmt.Errorf("proxy.masqueradeBit: %d is not a bit of 0 to 31", p.MasqueradeBit)
	}
	c.proxy = proxy.Config{
		Node: c.raw.Node, MasqueradeAll: p.MasqueradeAll, MasqueradeBit: uint8(p.MasqueradeBit),
		LocalhostNodePorts: p.LocalhostNodePorts, RejectUnknownPorts: true,
	}.WithMode(proxy.Mode(p.Mode))
	var err error
	if c.proxy.Scheduler, err = scheduler(proxy.Mode(p.Mode), p.Scheduler); err != nil {
		return c, err
	}
	if c.proxy.ServiceCIDRs, err = prefixes("proxy.serviceCIDRs", p.ServiceCIDRs); err != nil {
		return c, err
	}
	if err := c.typedDetector(); err != nil {
		return c, err
	}
	if err := c.typedNodePorts(); err != nil {
		return c, err
	}
	return c, c.typedRest()
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

func (c *config) typedNodePorts() error {
	p := c.raw.Proxy
	list := p.NodePortAddresses
	if len(list) == 0 && proxy.Mode(p.Mode).Traits().PrimaryNodePorts {
		list = []string{"primary"}
	}
	if len(list) == 1 && list[0] == "primary" {
		c.proxy.NodePortAddresses.Primary = true
		return nil
	}
	var err error
	c.proxy.NodePortAddresses.CIDRs, err = prefixes("proxy.nodePortAddresses", list)
	return err
}

func (c *config) typedRest() error {
	if !slices.Contains([]string{"insecure", "verified", "disabled"}, c.raw.DNS.Pods) {
		return fmt.Errorf("dns.pods: %q is not insecure, verified or disabled", c.raw.DNS.Pods)
	}
	var err error
	if c.publishService, err = objectName("ingress.publishService", c.raw.Ingress.PublishService); err != nil {
		return err
	}
	if c.defaultCert, err = objectName("ingress.defaultCertificate", c.raw.Ingress.DefaultCertificate); err != nil {
		return err
	}
	c.trustedProxies, err = prefixes("ingress.trustedProxies", c.raw.Ingress.TrustedProxies)
	return err
}

func objectName(field, s string) (model.Name, error) {
	if s == "" {
		return model.Name{}, nil
	}
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" {
		return model.Name{}, fmt.Errorf("%s: %q is not NAMESPACE/NAME", field, s)
	}
	return model.Name{Namespace: ns, Name: name}, nil
}

func prefixes(field string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a CIDR such as 10.244.0.0/16", field, s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func nodeName() string {
	if n := os.Getenv("NODE_NAME"); n != "" {
		return n
	}
	h, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(h)
}
