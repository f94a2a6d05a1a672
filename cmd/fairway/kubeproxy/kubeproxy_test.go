package kubeproxy

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// kubeadm is what kubeadm 1.37 writes into the ConfigMap kube-proxy.
const kubeadm = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data:
  config.conf: |-
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    bindAddress: 0.0.0.0
    bindAddressHardFail: false
    clientConnection:
      acceptContentTypes: ""
      burst: 0
      contentType: ""
      kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
      qps: 0
    clusterCIDR: 10.244.0.0/16
    configSyncPeriod: 0s
    conntrack:
      maxPerCore: null
      min: null
      tcpBeLiberal: false
      tcpCloseWaitTimeout: null
      tcpEstablishedTimeout: null
      udpStreamTimeout: 0s
      udpTimeout: 0s
    detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
    detectLocalMode: ""
    enableProfiling: false
    healthzBindAddress: ""
    hostnameOverride: ""
    iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
    ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
    kind: KubeProxyConfiguration
    logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
    metricsBindAddress: ""
    mode: ""
    nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
    nodePortAddresses: null
    oomScoreAdj: null
    portRange: ""
    showHiddenMetricsForVersion: ""
    winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
  kubeconfig.conf: |-
    apiVersion: v1
    kind: Config
`

func TestKubeadm(t *testing.T) {
	data := Find([]byte(kubeadm))
	if data == nil {
		t.Fatal("no KubeProxyConfiguration found in the ConfigMap")
	}
	c, warnings, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if w := append(append(warnings, c.Unused()...), c.UnusedInMode()...); len(w) != 0 {
		t.Errorf("warnings about kubeadm's own file: %v", w)
	}
	d := c.Defaults()
	if err := d.Validate([]string{"iptables", "nftables"}); err != nil {
		t.Error(err)
	}
	if d.ClientConnection.Kubeconfig != "/var/lib/kube-proxy/kubeconfig.conf" || d.ClusterCIDR != "10.244.0.0/16" ||
		*d.HealthzBindAddress != "0.0.0.0:10256" || *d.MetricsBindAddress != "127.0.0.1:10249" || *d.Conntrack.MaxPerCore != 32768 ||
		*d.Conntrack.Min != 131072 || d.Conntrack.TCPEstablishedTimeout.Duration != 24*time.Hour || *d.OOMScoreAdj != -999 ||
		*d.IPTables.MasqueradeBit != 14 || !*d.IPTables.LocalhostNodePorts || d.IPTables.SyncPeriod.Duration != 30*time.Second {
		text, _ := yaml.Marshal(d)
		t.Errorf("not kube-proxy's defaults:\n%s", text)
	}
}

func TestFind(t *testing.T) {
	for text, found := range map[string]bool{
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n": true,
		"proxy: {mode: nftables}\n":                                  false,
		"apiVersion: v1\nkind: ConfigMap\ndata: {a: 'kind: Config'}": false,
		"": false,
	} {
		if got := Find([]byte(text)) != nil; got != found {
			t.Errorf("%q: found %v", text, got)
		}
	}
	if _, _, err := Read([]byte("apiVersion: kubeproxy.config.k8s.io/v9\nkind: KubeProxyConfiguration\n")); err == nil || !strings.Contains(err.Error(), "v9 is not") {
		t.Errorf("another version: %v", err)
	}
}

func read(t *testing.T, text string) (*Config, []Warning) {
	t.Helper()
	c, w, err := Read([]byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + text))
	if err != nil {
		t.Fatal(text, err)
	}
	return c, w
}

// TestWarnings: what has no effect here is told by its name.
func TestWarnings(t *testing.T) {
	for text, field := range map[string]string{
		"iptables: {syncPeriodd: 3s}":                          "iptables.syncPeriodd",
		"mood: x":                                              "mood",
		"featureGates: {Magic: true}":                          "featureGates.Magic",
		"featureGates: {AllAlpha: true}":                       "featureGates.AllAlpha",
		"clientConnection: {qps: 50}":                          "clientConnection.qps",
		"clientConnection: {burst: 50}":                        "clientConnection.burst",
		"clientConnection: {acceptContentTypes: x}":            "clientConnection.acceptContentTypes",
		"clientConnection: {contentType: x}":                   "clientConnection.contentType",
		"configSyncPeriod: 5m":                                 "configSyncPeriod",
		"portRange: 1-2":                                       "portRange",
		"windowsRunAsService: true":                            "windowsRunAsService",
		"winkernel: {networkName: x}":                          "winkernel",
		"showHiddenMetricsForVersion: '1.36'":                  "showHiddenMetricsForVersion",
		"logging: {vmodule: [{filePattern: a, verbosity: 1}]}": "logging.vmodule",
		"nftables: {masqueradeAll: true}":                      "nftables.masqueradeAll",
		"{mode: nftables, iptables: {masqueradeAll: true}}":    "iptables.masqueradeAll",
		"ipvs: {scheduler: lc}":                                "ipvs.scheduler",
		"ipvs: {excludeCIDRs: [10.0.0.0/8]}":                   "ipvs.excludeCIDRs",
		"ipvs: {strictARP: true}":                              "ipvs.strictARP",
		"detectLocalMode: NodeCIDR":                            "clusterCIDR",
	} {
		if !strings.HasPrefix(text, "{") {
			if !strings.HasPrefix(text, "detectLocalMode") {
				text += "\nclusterCIDR: 10.0.0.0/8"
			} else {
				text += "\nclusterCIDR: 10.0.0.0/8 "
			}
		} else {
			text = strings.Trim(strings.ReplaceAll(text, "nftables, ", "nftables\n"), "{}") + "}\nclusterCIDR: 10.0.0.0/8"
		}
		c, w := read(t, text)
		w = append(append(w, c.Unused()...), c.UnusedInMode()...)
		if len(w) != 1 || w[0].Field != field {
			t.Errorf("%s: warnings %v, want one of %s", text, w, field)
		}
	}
}

// TestRefused: the words are those of kube-proxy 1.37.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"iptables: {masqueradeBit: 45}":                    "KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: 45: must be within the range [0, 31]",
		"mode: nftables\nnftables: {masqueradeBit: -1}":    "KubeProxyConfiguration.KubeProxyNFTablesConfiguration.MasqueradeBit: Invalid value: -1: must be within the range [0, 31]",
		"mode: kernelspace":                                `KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "kernelspace": must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables])`,
		"mode: ipvs\nfeatureGates: {KubeProxyIPVS: false}": `KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "ipvs": must be iptables, nftables or blank (blank means the best-available proxy [currently iptables])`,
		"mode: ipvs\nipvs: {udpTimeout: -1s}":              "KubeProxyConfiguration.KubeProxyIPVSConfiguration.UDPTimeout: Invalid value: \"-1s\": must be greater than or equal to 0",
		"mode: ipvs\nipvs: {excludeCIDRs: [x]}":            `KubeProxyConfiguration.KubeProxyIPVSConfiguration.ExcludeCidrs[0]: Invalid value: "x": must be a valid CIDR`,
		"bindAddress: here":                                `KubeProxyConfiguration.BindAddress: Invalid value: "here": not a valid textual representation of an IP address`,
		"healthzBindAddress: '1.2.3.4:x'":                  `KubeProxyConfiguration.HealthzBindAddress: Invalid value: "x": must be a valid port`,
		"metricsBindAddress: 'here:1'":                     `KubeProxyConfiguration.MetricsBindAddress: Invalid value: "here": must be a valid IP`,
		"nodePortAddresses: [here]":                        `KubeProxyConfiguration.NodePortAddresses[0]: Invalid value: "here": must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'`,
		"nodePortAddresses: [all, all]":                    `KubeProxyConfiguration.NodePortAddresses[1]: Duplicate value: "all"`,
		"oomScoreAdj: 1001":                                "KubeProxyConfiguration.KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 1001: must be within the range [-1000, 1000]",
		"conntrack: {min: -1}":                             "KubeProxyConfiguration.KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.Min: Invalid value: -1: must be greater than or equal to 0",
		"iptables: {syncPeriod: 1s, minSyncPeriod: 2s}":    "KubeProxyConfiguration.SyncPeriod: Invalid value: \"2s\": must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod",
		"configSyncPeriod: -1s":                            "KubeProxyConfiguration.ConfigSyncPeriod: Invalid value: \"-1s\": must be greater than 0",
		"detectLocalMode: BridgeInterface":                 `KubeProxyConfiguration.DetectLocalConfiguration.InterfaceName: Invalid value: "": must not be empty`,
		"detectLocalMode: ClusterCIDR\nclusterCIDR: x":     `KubeProxyConfiguration.DetectLocalConfiguration.ClusterCIDRs[0]: Invalid value: "x": must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)`,
		"detectLocalMode: Wish":                            `KubeProxyConfiguration.DetectLocalMode: Unsupported value: "Wish"`,
		"clientConnection: {burst: -1}":                    "KubeProxyConfiguration.ClientConnection.Burst: Invalid value: -1: must be greater than or equal to 0",
	} {
		c, _ := read(t, text)
		d := c.Defaults()
		err := d.Validate([]string{"iptables", "nftables", "ipvs"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestFlags: every flag of kube-proxy 1.37 that is not Fairway's own is there, takes what
// kube-proxy takes, and leaves a trace: in the Config, in what is to be done at once, or as
// a warning.
func TestFlags(t *testing.T) {
	for name, value := range map[string]string{
		"bind-address": "10.0.0.1", "bind-address-hard-fail": "true", "boot-id-file": "x", "cleanup": "true", "config-sync-period": "1m",
		"conntrack-max-per-core": "1", "conntrack-min": "1", "conntrack-tcp-be-liberal": "true", "conntrack-tcp-timeout-close-wait": "1m",
		"conntrack-tcp-timeout-established": "1m", "conntrack-udp-timeout": "1m", "conntrack-udp-timeout-stream": "1m",
		"detect-local-mode": "NodeCIDR", "feature-gates": "A=true,B=false", "healthz-bind-address": "0.0.0.0", "healthz-port": "1",
		"hostname-override": "n", "init-only": "true", "iptables-localhost-nodeports": "false", "iptables-masquerade-bit": "3",
		"iptables-min-sync-period": "1s", "iptables-sync-period": "1m", "ipvs-exclude-cidrs": "10.0.0.0/8", "ipvs-min-sync-period": "1s",
		"ipvs-scheduler": "lc", "ipvs-strict-arp": "true", "ipvs-sync-period": "1m", "ipvs-tcp-timeout": "1m", "ipvs-tcpfin-timeout": "1m",
		"ipvs-udp-timeout": "1m", "kube-api-burst": "1", "kube-api-content-type": "x", "kube-api-qps": "1.5", "log-flush-frequency": "5s",
		"log-json-info-buffer-size": "1", "log-json-split-stream": "true", "log-text-info-buffer-size": "1", "log-text-split-stream": "true",
		"logging-format": "json", "machine-id-file": "x", "masquerade-all": "true", "master": "https://x", "metrics-bind-address": "127.0.0.1:1",
		"metrics-port": "1", "nodeport-addresses": "primary", "oom-score-adj": "1", "pod-bridge-interface": "br0",
		"pod-interface-name-prefix": "veth", "profiling": "true", "show-hidden-metrics-for-version": "1.36", "v": "4", "version": "true",
		"vmodule": "a=1", "write-config-to": "/x",
	} {
		var f Flags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		names := f.Add(fs)
		empty, _ := yaml.Marshal(f.Config)
		if err := fs.Parse([]string{"--" + name + "=" + value}); err != nil {
			t.Error(err)
			continue
		}
		warnings := f.Finish("ipvs")
		f.Config.Mode = ""
		full, _ := yaml.Marshal(f.Config)
		if string(full) == string(empty) && len(warnings) == 0 && f.Master == "" && f.WriteConfigTo == "" && !f.Cleanup && !f.InitOnly && !f.Version {
			t.Errorf("--%s=%s has no effect and no warning", name, value)
		}
		if len(names) != 54 {
			t.Fatalf("%d flags, the test knows 54: %v", len(names), names)
		}
	}
}

func TestFlagForms(t *testing.T) {
	var f Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Add(fs)
	if err := fs.Parse([]string{"-v", "3", "--profiling", "--healthz-port", "0", "--metrics-port=8", "--masquerade-all"}); err != nil {
		t.Fatal(err)
	}
	f.Finish("nftables")
	c := f.Config
	if *c.Logging.Verbosity != 3 || !*c.EnableProfiling || *c.HealthzBindAddress != "" || *c.MetricsBindAddress != "127.0.0.1:8" || !*c.NFTables.MasqueradeAll {
		t.Errorf("%+v", c)
	}
	for _, bad := range []string{"--bind-address=x", "--healthz-bind-address=x:1", "--metrics-bind-address=1.2.3.4:99999", "--oom-score-adj=x", "--feature-gates=A", "--v=x"} {
		var f Flags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Add(fs)
		if fs.Parse([]string{bad}) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
