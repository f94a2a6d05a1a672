package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"fairway/proxy"

	"github.com/spf13/cobra"
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
	var f runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Do it: program the rules, answer DNS, give out addresses, serve Ingresses",
		Long: `Run follows an API server (or, with --manifests, a directory of manifests) and makes
this node serve it. Rules stay in the kernel when it ends, so a restart is not noticed;
fairway cleanup removes them.

  fairway run                                     in a Pod (deploy/fairway.yaml)
  fairway run --kubeconfig FILE --node worker-1   as a plain process on a node
  fairway run --manifests DIR                     on any Linux machine, no cluster
  fairway run --roles ingress                     one job, beside other agents
  fairway run --roles proxy --proxy-mode userspace --manifests DIR
                                                  node ports, without privileges
  fairway run --config kube-proxy.conf            what kube-proxy did, from its own file

--config takes this program's file or a KubeProxyConfiguration, and kube-proxy's flags are
taken too (--help-kube-proxy lists them). Flags override the file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.helpConfig {
				_, err := c.OutOrStdout().Write(defaultConfig)
				return err
			}
			if done, err := f.atOnce(c); done || err != nil {
				return err
			}
			raw, err := readConfig(f.config)
			if err != nil {
				return err
			}
			f.override(c, &raw)
			cfg, err := raw.typed()
			if err != nil {
				return err
			}
			if f.kubeProxy.WriteConfigTo != "" {
				return writeKubeProxyConfig(cfg, f.kubeProxy.WriteConfigTo)
			}
			cfg.level = setLog(raw.Log.Format, raw.Log.Verbosity)
			cfg.flags = c.Flags()
			if f.kubeProxy.InitOnly {
				return initOnly(cfg)
			}
			return run(c.Context(), cfg)
		},
	}
	f.flags(c)
	return c
}

// run does its jobs until ctx ends, then drains.
func run(ctx context.Context, cfg config) error {
	if os.Geteuid() != 0 && cfg.roles["proxy"] && cfg.raw.Proxy.Mode != string(proxy.Userspace) {
		return errors.New("programming the kernel's rules needs root (CAP_NET_ADMIN); without it take --proxy-mode userspace, or leave the job out: --roles dns,ingress")
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
	slog.Info(d.lastWord())
	return err
}

// lastWord says what is left behind: a proxy process without privileges has no rules.
func (d *daemon) lastWord() string {
	switch {
	case !d.cfg.roles["proxy"]:
		return "stopped"
	case d.cfg.raw.Proxy.Mode == string(proxy.Userspace) && os.Geteuid() != 0:
		return "stopped; what this process listened on is served no more"
	}
	return "stopped; the rules stay in the kernel (fairway cleanup removes them)"
}

// forwards tells whether the kernel passes on packets of others, which is what reaching a
// Service from outside is. Node agents turn it on; on a machine of its own nobody does.
func forwards() bool {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	return err != nil || strings.TrimSpace(string(data)) != "0"
}
