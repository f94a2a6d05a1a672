package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// After a stop was asked for the servers take new requests for lameDuck, so that the
// cluster can turn elsewhere; then open requests get drainTime, and the rest lastTime.
// Together they are less than the 30 seconds a Pod gets.
const (
	lameDuck  = 5 * time.Second
	drainTime = 18 * time.Second
	lastTime  = 3 * time.Second
)

func runCommand() *cobra.Command {
	var configFile string
	var f runFlags
	var helpConfig, verbose bool
	c := &cobra.Command{
		Use:   "run",
		Short: "Do it: program the rules, answer DNS, give out addresses, serve Ingresses",
		Long: `Run follows an API server (or, with --manifests, a directory of manifests) and makes
this node serve it. Rules stay in the kernel when it ends, so a restart is not noticed;
fairway cleanup removes them.

  fairway run                                     in a Pod (deploy/fairway.yaml)
  fairway run --kubeconfig FILE --node worker-1   as a plain process on a node
  fairway run --manifests DIR                     on any Linux machine, no cluster
  fairway run --roles ingress                     one job, beside other agents`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if helpConfig {
				_, err := c.OutOrStdout().Write(defaultConfig)
				return err
			}
			raw, err := readConfig(configFile)
			if err != nil {
				return err
			}
			f.override(c, &raw)
			cfg, err := raw.typed()
			if err != nil {
				return err
			}
			setLog(verbose)
			return run(c.Context(), cfg)
		},
	}
	fl := c.Flags()
	fl.StringVar(&configFile, "config", "", "configuration file; flags override it")
	fl.BoolVar(&helpConfig, "help-config", false, "print every field of the configuration file with its default")
	fl.BoolVarP(&verbose, "verbose", "v", false, "log more")
	f.flags(c)
	return c
}

// runFlags are the usual few that override the file.
type runFlags struct {
	roles                                                  []string
	kubeconfig, server, manifests, node, mode, clusterCIDR string
}

func (f *runFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.roles, "roles", nil, "jobs to do: proxy, dns, lb, ingress (default all)")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the Pod's service account)")
	fl.StringVar(&f.server, "server", "", "the API server's own address, reachable before Services work")
	fl.StringVar(&f.manifests, "manifests", "", "directory of manifests to follow instead of an API server")
	fl.StringVar(&f.node, "node", "", "this node's name (default $NODE_NAME, else the host's name)")
	fl.StringVar(&f.mode, "proxy-mode", "", "nftables or iptables (default nftables)")
	fl.StringVar(&f.clusterCIDR, "cluster-cidr", "", "the pods' ranges, comma separated (default: the Node's pod CIDRs tell local pods)")
}

func (f *runFlags) override(c *cobra.Command, raw *rawConfig) {
	set := func(name string, to *string, v string) {
		if c.Flags().Changed(name) {
			*to = v
		}
	}
	if c.Flags().Changed("roles") {
		raw.Roles = f.roles
	}
	set("kubeconfig", &raw.Kubeconfig, f.kubeconfig)
	set("server", &raw.Server, f.server)
	set("manifests", &raw.Manifests, f.manifests)
	set("node", &raw.Node, f.node)
	set("proxy-mode", &raw.Proxy.Mode, f.mode)
	set("cluster-cidr", &raw.Proxy.ClusterCIDR, f.clusterCIDR)
}

func setLog(verbose bool) {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	klog.SetSlogLogger(slog.Default()) // client-go's own words, in one form with ours
	// The heap of an idle node is a few megabytes: collecting more often keeps the
	// process near it and costs nothing there.
	debug.SetGCPercent(50)
}

// run does its jobs until ctx ends, then drains.
func run(ctx context.Context, cfg config) error {
	if os.Geteuid() != 0 && cfg.roles["proxy"] {
		return errors.New("programming the kernel's rules needs root (CAP_NET_ADMIN); without it leave the job out: --roles dns,ingress")
	}
	d, err := newDaemon(ctx, cfg)
	if err != nil {
		return err
	}
	slog.Info("fairway "+version, "node", cfg.raw.Node, "roles", strings.Join(cfg.raw.Roles, ","), "mode", cfg.raw.Proxy.Mode, "objects", d.from)
	if cfg.roles["proxy"] && !forwards() {
		slog.Warn("this machine forwards no packets, so Services answer itself alone: sysctl -w net.ipv4.ip_forward=1 (and keep it in /etc/sysctl.d)")
	}
	err = d.serve(ctx)
	slog.Info("stopped; the rules stay in the kernel (fairway cleanup removes them)")
	return err
}

// forwards tells whether the kernel passes on packets of others, which is what reaching a
// Service from outside is. Node agents turn it on; on a machine of its own nobody does.
func forwards() bool {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	return err != nil || strings.TrimSpace(string(data)) != "0"
}
