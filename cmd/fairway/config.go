package main

import (
	_ "embed"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"fairway/cmd/fairway/kubeproxy"
	"fairway/model"
	"fairway/proxy"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// defaultConfig is the documented default, the one source of defaults.
//
//go:embed config.yaml
var defaultConfig []byte

// rawConfig is the file as written; config.yaml describes every field.
type rawConfig struct {
	warnings []kubeproxy.Warning // about a KubeProxyConfiguration's fields

	Log struct {
		Format    string `json:"format"`
		Verbosity uint32 `json:"verbosity"`
	} `json:"log"`
	Roles      []string `json:"roles"`
	Node       string   `json:"node"`
	Kubeconfig string   `json:"kubeconfig"`
	Server     string   `json:"server"`
	Manifests  string   `json:"manifests"`
	Proxy      rawProxy `json:"proxy"`
	DNS        struct {
		Domain      string   `json:"domain"`
		Listen      []string `json:"listen"`
		TTL         int      `json:"ttl"`
		NegativeTTL int      `json:"negativeTTL"`
		Pods        string   `json:"pods"`
		Upstreams   []string `json:"upstreams"`
		ResolvConf  string   `json:"resolvConf"`
		Corefile    string   `json:"corefile"`
		AutoPath    bool     `json:"autopath"`
		CompleteSvc bool     `json:"completeSvc"`

		MaxConcurrent     int `json:"maxConcurrent"`
		CacheTTL          int `json:"cacheTTL"`
		ServeStale        int `json:"serveStale"`
		LargePerSecond    int `json:"largePerSecond"`
		QueriesPerSecond  int `json:"queriesPerSecond"`
		MaxTCPConnections int `json:"maxTCPConnections"`
		Sockets           int `json:"sockets"`

		HealthAddress  string `json:"healthAddress"`
		ReadyAddress   string `json:"readyAddress"`
		MetricsAddress string `json:"metricsAddress"`
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
	detectFromNode bool       // NodeCIDR mode: the detector's ranges are the Node's
	bindAddress    netip.Addr // the node's primary address, in place of the Node object's
	trustedProxies []netip.Prefix
	publishService model.Name
	defaultCert    model.Name
	corefile       *corefile      // nil without one
	level          *slog.LevelVar // of the log; nil where none is kept
	flags          *pflag.FlagSet // the command line's, for /flagz
	// fromFiles: nobody has defaulted or admitted the objects.
	fromFiles bool
}

// readConfig reads the file over the defaults; an empty path gives the defaults. A
// KubeProxyConfiguration is taken for one too.
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
	if theirs := kubeproxy.Find(data); theirs != nil {
		if raw.warnings, err = readKubeProxy(theirs, &raw); err != nil {
			return raw, fmt.Errorf("configuration %s: %w", path, err)
		}
		return raw, nil
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
	if err := c.typedProxy(); err != nil {
		return c, err
	}
	return c, c.typedRest()
}

func (c *config) typedRest() error {
	if !slices.Contains([]string{"insecure", "verified", "disabled"}, c.raw.DNS.Pods) {
		return fmt.Errorf("dns.pods: %q is not insecure, verified or disabled", c.raw.DNS.Pods)
	}
	var err error
	if path := c.raw.DNS.Corefile; path != "" && c.roles["dns"] {
		if c.corefile, err = readCorefile(path, c.raw.Node); err != nil {
			return err
		}
	}
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
		if err != nil || p.Addr().Is4In6() {
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
