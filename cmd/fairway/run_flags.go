package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"

	"fairway/cmd/fairway/kubeproxy"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// runFlags are the usual few that override the file, and kube-proxy's.
type runFlags struct {
	config                                                 string
	roles                                                  []string
	kubeconfig, server, manifests, node, mode, clusterCIDR string
	fallback, corefile                                     string
	helpConfig, helpKubeProxy, verbose                     bool
	kubeProxy                                              kubeproxy.Flags
	kubeProxyNames                                         []string
}

func (f *runFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration file, or a KubeProxyConfiguration; flags override it")
	fl.BoolVar(&f.helpConfig, "help-config", false, "print every field of the configuration file with its default")
	fl.BoolVar(&f.helpKubeProxy, "help-kube-proxy", false, "list kube-proxy's flags, which are taken too")
	fl.BoolVar(&f.verbose, "verbose", false, "log more")
	fl.StringSliceVar(&f.roles, "roles", nil, "jobs to do: proxy, dns, lb, ingress (default all; proxy with a KubeProxyConfiguration)")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the Pod's service account)")
	fl.StringVar(&f.server, "server", "", "the API server's own address, reachable before Services work")
	fl.StringVar(&f.manifests, "manifests", "", "directory of manifests to follow instead of an API server")
	fl.StringVar(&f.node, "node", "", "this node's name (default $NODE_NAME, else the host's name)")
	fl.StringVar(&f.mode, "proxy-mode", "", modeNames()+" (default nftables; iptables with a KubeProxyConfiguration that names none)")
	fl.StringVar(&f.fallback, "fallback-mode", "", "the mode to take where the kernel lacks what proxy-mode needs (default: end)")
	fl.StringVar(&f.corefile, "corefile", "", "a CoreDNS configuration, for the job dns (dns.corefile)")
	fl.StringVar(&f.clusterCIDR, "cluster-cidr", "", "the pods' ranges, comma separated (default: the Node's pod CIDRs tell local pods)")
	f.kubeProxyNames = f.kubeProxy.Add(fl)
	for _, name := range f.kubeProxyNames {
		fl.Lookup(name).Hidden = true
	}
}

// atOnce does what kube-proxy's flags ask for in place of running.
func (f *runFlags) atOnce(c *cobra.Command) (done bool, err error) {
	out := c.OutOrStdout()
	switch {
	case f.helpKubeProxy:
		own := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
		for _, name := range f.kubeProxyNames {
			flag := *c.Flags().Lookup(name)
			flag.Hidden = false
			own.AddFlag(&flag)
		}
		_, err = fmt.Fprint(out, own.FlagUsagesWrapped(100))
		return true, err
	case f.kubeProxy.Version:
		c.Root().SetArgs([]string{"version"})
		return true, c.Root().ExecuteContext(c.Context())
	case f.kubeProxy.Cleanup:
		return true, cleanup(c.Context(), out, modes(), true)
	}
	return false, nil
}

func (f *runFlags) override(c *cobra.Command, raw *rawConfig) {
	set := func(name string, to *string, v string) {
		if c.Flags().Changed(name) {
			*to = v
		}
	}
	set("proxy-mode", &raw.Proxy.Mode, f.mode)
	set("cluster-cidr", &raw.Proxy.ClusterCIDR, f.clusterCIDR)
	set("corefile", &raw.DNS.Corefile, f.corefile)
	if raw.Proxy.DetectLocalMode == "none" && f.clusterCIDR != "" { // none only because a file had no CIDR
		raw.Proxy.DetectLocalMode = ""
	}
	k := &f.kubeProxy
	raw.warnings = append(raw.warnings, k.Finish(raw.Proxy.Mode)...)
	raw.warnings = append(raw.warnings, k.Config.Unused()...)
	applyKubeProxy(&k.Config, raw)
	set("master", &raw.Server, k.Master)
	if c.Flags().Changed("roles") {
		raw.Roles = f.roles
	}
	set("kubeconfig", &raw.Kubeconfig, f.kubeconfig)
	set("server", &raw.Server, f.server)
	set("manifests", &raw.Manifests, f.manifests)
	set("node", &raw.Node, f.node)
	set("fallback-mode", &raw.Proxy.FallbackMode, f.fallback)
	if f.verbose {
		raw.Log.Verbosity = max(raw.Log.Verbosity, verboseFrom)
	}
	raw.warnings = slices.Compact(raw.warnings)
}

// verboseFrom is the verbosity from which on debug lines are logged.
const verboseFrom = 2

// setLog returns the level, which may be changed while the program runs.
func setLog(format string, verbosity uint32) *slog.LevelVar {
	level := &slog.LevelVar{}
	level.Set(levelOf(verbosity))
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(os.Stderr, opts)
	if format == "json" {
		h = slog.NewJSONHandler(os.Stderr, opts)
	}
	slog.SetDefault(slog.New(h))
	klog.SetSlogLogger(slog.Default()) // client-go's own words, in one form with ours
	// The heap of an idle node is a few megabytes: collecting more often keeps the
	// process near it and costs nothing there.
	debug.SetGCPercent(50)
	return level
}

func levelOf(verbosity uint32) slog.Level {
	if verbosity >= verboseFrom {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func writeKubeProxyConfig(cfg config, path string) error {
	text, err := yaml.Marshal(cfg.asKubeProxy())
	if err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	return nil
}
