package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"

	"fairway/proxy"
)

// The chains that are not one Service's own, by kube-proxy's names.
const (
	kubeServices    = "KUBE-SERVICES"
	kubeExternal    = "KUBE-EXTERNAL-SERVICES"
	kubeNodePorts   = "KUBE-NODEPORTS"
	kubePostrouting = "KUBE-POSTROUTING"
	kubeMarkMasq    = "KUBE-MARK-MASQ"
	kubeForward     = "KUBE-FORWARD"
	kubeProxyFW     = "KUBE-PROXY-FIREWALL"
	kubeletFW       = "KUBE-FIREWALL"
	probeChain      = "KUBE-PROXY-PROBE"
	// Canary is an empty chain in mangle, nat and filter: when it is gone, somebody
	// flushed the tables.
	Canary = "KUBE-PROXY-CANARY"
	// KubeletCanary is the kubelet's like chain, in mangle: while it is there the
	// kubelet shares KUBE-FIREWALL.
	KubeletCanary = "KUBE-KUBELET-CANARY"
)

// hash is the 16 characters that name chains: base32(sha256(name + protocol [+
// endpoint])), nothing between.
func hash(parts ...string) string {
	var in [256]byte
	b := in[:0]
	for _, p := range parts {
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	var out [56]byte
	base32.StdEncoding.Encode(out[:], sum[:])
	return string(out[:16])
}

func portHash(k proxy.Key) string { return hash(k.String(), string(k.Proto)) }

func endpointChain(k proxy.Key, ep netip.AddrPort) string {
	return "KUBE-SEP-" + hash(k.String(), string(k.Proto), ep.String())
}

// ownChain tells whether a nat chain's name says it belongs to one Service; KUBE-XLB-
// is what proxies before Kubernetes 1.24 left.
func ownChain(name string) bool {
	for _, p := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return name == probeChain
}

// builtin tells whether a chain is the kernel's.
func builtin(name string) bool {
	switch name {
	case "INPUT", "FORWARD", "OUTPUT", "PREROUTING", "POSTROUTING":
		return true
	}
	return false
}
