package kubeproxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Flags are kube-proxy's of Kubernetes 1.37 that Fairway does not have by itself
// (--config, --kubeconfig, --proxy-mode and --cluster-cidr it has). Each writes what it
// is given into Config.
type Flags struct {
	Config Config
	// Master is --master; it stands in front of the kubeconfig's server.
	Master string
	// WriteConfigTo, Cleanup, InitOnly and Version make the program do that and end.
	WriteConfigTo              string
	Cleanup, InitOnly, Version bool

	iptablesSync, iptablesMin, ipvsSync, ipvsMin *metav1.Duration
	masqueradeAll                                *bool
	ignored                                      []Warning
}

// Add adds the flags to fs and returns their names.
func (f *Flags) Add(fs *pflag.FlagSet) []string {
	own := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	f.addProcess(own)
	f.addAddresses(own)
	f.addModes(own)
	f.addConntrack(own)
	f.addLogging(own)
	var names []string
	own.VisitAll(func(flag *pflag.Flag) {
		names = append(names, flag.Name)
		fs.AddFlag(flag)
	})
	return names
}

// Finish puts what depends on other flags in its place and returns a warning for each
// flag that was used and does nothing. mode is the proxy mode in force.
func (f *Flags) Finish(mode string) []Warning {
	c := &f.Config
	c.Mode = mode
	if mode == "nftables" {
		c.NFTables.MasqueradeAll = or2(f.masqueradeAll, c.NFTables.MasqueradeAll)
		c.NFTables.SyncPeriod, c.NFTables.MinSyncPeriod = f.iptablesSync, f.iptablesMin
	} else {
		c.IPTables.MasqueradeAll = or2(f.masqueradeAll, c.IPTables.MasqueradeAll)
		c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod = f.iptablesSync, f.iptablesMin
	}
	c.IPVS.SyncPeriod, c.IPVS.MinSyncPeriod = f.ipvsSync, f.ipvsMin
	return f.ignored
}

func or2[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func (f *Flags) addProcess(fs *pflag.FlagSet) {
	c := &f.Config
	fs.StringVar(&f.WriteConfigTo, "write-config-to", "", "write the configuration in force to this file, as a KubeProxyConfiguration, and exit")
	fs.BoolVar(&f.Cleanup, "cleanup", false, "remove all rules, kube-proxy's too, and exit (fairway cleanup --kube-proxy)")
	fs.BoolVar(&f.InitOnly, "init-only", false, "set the kernel up (what needs full root) and exit")
	fs.BoolVar(&f.Version, "version", false, "print the version and exit")
	fs.StringVar(&f.Master, "master", "", "address of the API server, in front of the kubeconfig's")
	set(fs, "feature-gates", "", "NAME=true|false, comma separated", "mapStringBool", func(s string) error { return c.gates(s) })
	text(fs, "hostname-override", "this node's name", &c.HostnameOverride)
	number(fs, "oom-score-adj", "the process's oom_score_adj, -1000 to 1000", &c.OOMScoreAdj)
	duration(fs, "config-sync-period", "how often kube-proxy asks for all objects again", &c.ConfigSyncPeriod)
	text(fs, "kube-api-content-type", "content type of requests to the API server", &c.ClientConnection.ContentType)
	set(fs, "kube-api-burst", "10", "burst of requests to the API server", "int32", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		c.ClientConnection.Burst = int32(n)
		return err
	})
	set(fs, "kube-api-qps", "5", "requests to the API server in a second", "float32", func(s string) error {
		n, err := strconv.ParseFloat(s, 32)
		c.ClientConnection.QPS = float32(n)
		return err
	})
	for _, name := range []string{"boot-id-file", "machine-id-file"} {
		f.ignore(fs, name, "string", "", "ignored: nothing here asks for the machine's identity")
	}
}

func (f *Flags) addAddresses(fs *pflag.FlagSet) {
	c := &f.Config
	set(fs, "bind-address", "0.0.0.0", "the node's primary address, in place of the Node object's", "ip", func(s string) error {
		if _, err := netip.ParseAddr(s); err != nil {
			return fmt.Errorf("%q is not a valid IP address", s)
		}
		c.BindAddress = s
		return nil
	})
	ipPort(fs, "healthz-bind-address", "0.0.0.0:10256", "where /healthz and /livez are served", &c.HealthzBindAddress)
	ipPort(fs, "metrics-bind-address", "127.0.0.1:10249", "where /metrics and /proxyMode are served", &c.MetricsBindAddress)
	port(fs, "healthz-port", healthzPort, "0.0.0.0", &c.HealthzBindAddress)
	port(fs, "metrics-port", metricsPort, "127.0.0.1", &c.MetricsBindAddress)
	yes(fs, "bind-address-hard-fail", "end when a port cannot be bound", &c.BindAddressHardFail)
	yes(fs, "profiling", "serve /debug/pprof", &c.EnableProfiling)
	text(fs, "show-hidden-metrics-for-version", "kube-proxy's hidden metrics", &c.ShowHiddenMetricsForVersion)
	list(fs, "nodeport-addresses", "CIDRs, primary, localhost or all: where NodePorts answer", &c.NodePortAddresses)
	text(fs, "detect-local-mode", "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", &c.DetectLocalMode)
	text(fs, "pod-bridge-interface", "the bridge, for detect-local-mode BridgeInterface", &c.DetectLocal.BridgeInterface)
	text(fs, "pod-interface-name-prefix", "the prefix, for detect-local-mode InterfaceNamePrefix", &c.DetectLocal.InterfaceNamePrefix)
}

func (f *Flags) addModes(fs *pflag.FlagSet) {
	c := &f.Config
	number(fs, "iptables-masquerade-bit", "bit of the packet mark that asks for masquerade", &c.IPTables.MasqueradeBit)
	yes(fs, "masquerade-all", "masquerade all traffic to cluster addresses", &f.masqueradeAll)
	yes(fs, "iptables-localhost-nodeports", "let 127.0.0.1 reach NodePorts", &c.IPTables.LocalhostNodePorts)
	duration(fs, "iptables-sync-period", "how often the rules are looked after", &f.iptablesSync)
	duration(fs, "iptables-min-sync-period", "least time from one change of the rules to the next", &f.iptablesMin)
	duration(fs, "ipvs-sync-period", "as iptables-sync-period, in mode ipvs", &f.ipvsSync)
	duration(fs, "ipvs-min-sync-period", "as iptables-min-sync-period, in mode ipvs", &f.ipvsMin)
	text(fs, "ipvs-scheduler", "rr, wrr, lc, wlc, lblc, lblcr, sh, dh, sed, nq or mh", &c.IPVS.Scheduler)
	list(fs, "ipvs-exclude-cidrs", "virtual servers in these ranges are left alone", &c.IPVS.ExcludeCIDRs)
	yes(fs, "ipvs-strict-arp", "set arp_ignore to 1 and arp_announce to 2", &c.IPVS.StrictARP)
	duration(fs, "ipvs-tcp-timeout", "idle TCP connections, 0 leaves the kernel's", &c.IPVS.TCPTimeout)
	duration(fs, "ipvs-tcpfin-timeout", "TCP connections after a FIN, 0 leaves the kernel's", &c.IPVS.TCPFinTimeout)
	duration(fs, "ipvs-udp-timeout", "UDP, 0 leaves the kernel's", &c.IPVS.UDPTimeout)
}

func (f *Flags) addConntrack(fs *pflag.FlagSet) {
	c := &f.Config.Conntrack
	number(fs, "conntrack-max-per-core", "connections to track per CPU, 0 leaves the kernel's limit", &c.MaxPerCore)
	number(fs, "conntrack-min", "connections to track at least", &c.Min)
	duration(fs, "conntrack-tcp-timeout-established", "idle established TCP connections, 0 leaves the kernel's", &c.TCPEstablishedTimeout)
	duration(fs, "conntrack-tcp-timeout-close-wait", "TCP connections in CLOSE_WAIT", &c.TCPCloseWaitTimeout)
	yes(fs, "conntrack-tcp-be-liberal", "take out-of-window packets for valid", &c.TCPBeLiberal)
	duration(fs, "conntrack-udp-timeout", "UDP flows without an answer, 0 leaves the kernel's", &c.UDPTimeout)
	duration(fs, "conntrack-udp-timeout-stream", "UDP flows with answers, 0 leaves the kernel's", &c.UDPStreamTimeout)
}

func (f *Flags) addLogging(fs *pflag.FlagSet) {
	c := &f.Config.Logging
	text(fs, "logging-format", "text or json", &c.Format)
	v := set(fs, "v", "0", "log more, from 2 on", "Level", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		level := uint32(n)
		c.Verbosity = &level
		return err
	})
	v.Shorthand = "v"
	f.ignore(fs, "vmodule", "pattern=N,...", "", "ignored: --v is for all of the program")
	f.ignore(fs, "log-flush-frequency", "duration", "", "ignored: every line is written at once")
	f.ignore(fs, "log-text-split-stream", "bool", "true", "ignored: log lines go to standard error")
	f.ignore(fs, "log-text-info-buffer-size", "quantity", "", "ignored: every line is written at once")
	f.ignore(fs, "log-json-split-stream", "bool", "true", "ignored: log lines go to standard error")
	f.ignore(fs, "log-json-info-buffer-size", "quantity", "", "ignored: every line is written at once")
}

func (c *Config) gates(s string) error {
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	for pair := range strings.SplitSeq(s, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("malformed pair, expect string=bool")
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("invalid value of %s: %s, err: %w", name, value, err)
		}
		c.FeatureGates[strings.TrimSpace(name)] = on
	}
	return nil
}

// value is a flag that hands what it is given to a function.
type value struct {
	shown, kind string
	set         func(string) error
}

func (v *value) String() string { return v.shown }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(s string) error {
	if err := v.set(s); err != nil {
		return err
	}
	v.shown = s
	return nil
}

func set(fs *pflag.FlagSet, name, shown, usage, kind string, f func(string) error) *pflag.Flag {
	return fs.VarPF(&value{shown, kind, f}, name, "", usage)
}

func (f *Flags) ignore(fs *pflag.FlagSet, name, kind, alone, message string) {
	flag := set(fs, name, "", message, kind, func(string) error {
		if !slices.ContainsFunc(f.ignored, func(w Warning) bool { return w.Field == "--"+name }) {
			f.ignored = append(f.ignored, Warning{"--" + name, message})
		}
		return nil
	})
	flag.NoOptDefVal = alone
}

func text(fs *pflag.FlagSet, name, usage string, to *string) { fs.StringVar(to, name, "", usage) }

func list(fs *pflag.FlagSet, name, usage string, to *[]string) {
	fs.StringSliceVar(to, name, nil, usage)
}

func yes(fs *pflag.FlagSet, name, usage string, to **bool) {
	set(fs, name, "", usage, "bool", func(s string) error {
		b, err := strconv.ParseBool(s)
		*to = &b
		return err
	}).NoOptDefVal = "true"
}

func number(fs *pflag.FlagSet, name, usage string, to **int32) {
	set(fs, name, "", usage, "int32", func(s string) error {
		n, err := strconv.ParseInt(s, 0, 32)
		v := int32(n)
		*to = &v
		return err
	})
}

func duration(fs *pflag.FlagSet, name, usage string, to **metav1.Duration) {
	set(fs, name, "", usage, "duration", func(s string) error {
		d, err := time.ParseDuration(s)
		*to = &metav1.Duration{Duration: d}
		return err
	})
}

func ipPort(fs *pflag.FlagSet, name, shown, usage string, to **string) {
	set(fs, name, shown, usage, "ipport", func(s string) error {
		host := s
		if h, p, err := net.SplitHostPort(s); err == nil {
			host = h
			if n, err := strconv.Atoi(p); err != nil || n < 0 || n > 65535 {
				return fmt.Errorf("%q is not a valid number", p)
			}
		}
		if _, err := netip.ParseAddr(host); s != "" && err != nil {
			return fmt.Errorf("%q is not a valid IP address", host)
		}
		*to = &s
		return nil
	})
}

// port is a flag of old that changes the address's port; 0 serves nothing.
func port(fs *pflag.FlagSet, name, shown, host string, to **string) {
	set(fs, name, shown, "old: the port of the address of that name, 0 serves nothing", "int32", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return err
		}
		addr := ""
		if n > 0 {
			if *to != nil && **to != "" {
				host, _, _ = net.SplitHostPort(**to)
			}
			addr = net.JoinHostPort(host, strconv.FormatUint(n, 10))
		}
		*to = &addr
		return nil
	})
}
