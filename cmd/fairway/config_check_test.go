package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigRefused: a wrong value is told with its field, before anything starts.
func TestConfigRefused(t *testing.T) {
	for text, field := range map[string]string{
		"roles: []":                  "roles:",
		"roles: [x]":                 "roles:",
		"node: Bad_Name!":            "node:",
		"proxy: {mode: ipx}":         "proxy.mode:",
		"proxy: {masqueradeBit: 32}": "proxy.masqueradeBit:",
		"proxy: {clusterCIDR: foo}":  "proxy.clusterCIDR:",
		"proxy: {clusterCIDR: '10.0.0.0/8,11.0.0.0/16'}":        "proxy.clusterCIDR:",
		"proxy: {detectLocalMode: X}":                           "proxy.detectLocalMode:",
		"proxy: {detectLocalMode: BridgeInterface}":             "proxy.detectLocalInterface:",
		"proxy: {nodePortAddresses: [first, 10.0.0.0/8]}":       "proxy.nodePortAddresses:",
		"proxy: {nodePortAddresses: [primary, 10.0.0.0/8]}":     "",
		"proxy: {fallbackMode: windows}":                        "proxy.fallbackMode:",
		"proxy: {bindAddress: here}":                            "proxy.bindAddress:",
		"proxy: {oomScoreAdj: 1001}":                            "proxy.oomScoreAdj:",
		"proxy: {minSyncPeriod: 1m}":                            "proxy.minSyncPeriod:",
		"proxy: {conntrack: {udpTimeout: -1s}}":                 "proxy.conntrack.udpTimeout:",
		"proxy: {ipvs: {excludeCIDRs: [x]}}":                    "proxy.ipvs.excludeCIDRs:",
		"proxy: {serviceCIDRs: [10.96.0.0]}":                    "proxy.serviceCIDRs:",
		"proxy: {metricsBindAddress: abc}":                      "proxy.metricsBindAddress:",
		"proxy: {healthzBindAddress: '1.2.3.4:99999'}":          "proxy.healthzBindAddress:",
		"dns: {domain: ..bad}":                                  "dns.domain:",
		"dns: {ttl: -1}":                                        "dns.ttl:",
		"dns: {negativeTTL: 99999999999}":                       "dns.negativeTTL:",
		"dns: {sockets: 0}":                                     "dns.sockets:",
		"dns: {sockets: 65}":                                    "dns.sockets:",
		"dns: {largePerSecond: 0}":                              "dns.largePerSecond:",
		"dns: {largePerSecond: -2}":                             "dns.largePerSecond:",
		"dns: {maxTCPConnections: 0}":                           "dns.maxTCPConnections:",
		"dns: {serveStale: -1}":                                 "dns.serveStale:",
		"dns: {metricsAddress: '9153'}":                         "dns.metricsAddress:",
		"dns: {corefile: /nowhere/Corefile}":                    "dns.corefile:",
		"dns: {largePerSecond: -1, cacheTTL: 0}":                "",
		"dns: {pods: all}":                                      "dns.pods:",
		"dns: {upstreams: [foo bar]}":                           "dns.upstreams:",
		"loadBalancer: {leaseNamespace: ''}":                    "loadBalancer.leaseNamespace:",
		"ingress: {http: ':80', https: '127.0.0.1:80'}":         "ingress.https:",
		"ingress: {http: ':http'}":                              "ingress.http:",
		"ingress: {controllers: [], classAnnotations: []}":      "ingress.controllers:",
		"ingress: {trustedProxies: [1.2.3.4]}":                  "ingress.trustedProxies:",
		"ingress: {publishService: x}":                          "ingress.publishService:",
		"ingress: {defaultCertificate: a/b/c, ttps: x}":         "ttps",
		"proxy: {clusterCIDR: '10.0.0.0/8,fd00::/64'}":          "",
		"dns: {domain: cluster.local., upstreams: [1.1.1.1]}":   "",
		"ingress: {http: '127.0.0.1:80', https: '10.0.0.1:80'}": "",
		"proxy: {metricsBindAddress: ''}":                       "",
		"{roles: [dns], ingress: {http: ':80', https: ''}}":     "",
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		raw, err := readConfig(path)
		if err == nil {
			_, err = raw.typed()
		}
		if field == "" && err != nil || field != "" && (err == nil || !strings.Contains(err.Error(), field)) {
			t.Errorf("%s: %v, want it about %q", text, err, field)
		}
	}
}
