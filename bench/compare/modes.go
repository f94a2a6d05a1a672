package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairway/bench/report"
)

// mode is one contestant: a program in one of its modes. The list is data: a mode that
// lands later is a line more.
type mode struct {
	program string // fairway or kube-proxy
	name    string // as told in tables
	asks    string // what the program calls it
	variant string // which of the two iptables commands it finds
	sizes   []int
}

func (m mode) String() string { return m.program + "/" + m.name }

// modes lists the contestants, neighbours the ones to be compared. The nftables sizes
// begin small: kube-proxy's way of loading them grows faster than the number of Services.
func modes() []mode {
	steps, sizes := []int{500, 1000, 2000, 4000, 5000, 10000, 30000}, []int{1000, 5000, 10000, 30000}
	return []mode{
		{report.Fairway, "nftables", "nftables", "", steps},
		{report.KubeProxy, "nftables", "nftables", "", steps},
		{report.Fairway, "iptables-legacy", "iptables", "legacy", sizes},
		{report.KubeProxy, "iptables-legacy", "iptables", "legacy", sizes},
		{report.Fairway, "iptables-nft", "iptables", "nft", sizes},
		{report.KubeProxy, "iptables-nft", "iptables", "nft", sizes},
		{report.Fairway, "userspace", "userspace", "", sizes},
		{report.Fairway, "ebpf", "ebpf", "", sizes},
	}
}

// chosen are the modes of a comma separated list of names, PROGRAM/MODE or either part.
func chosen(list string) ([]mode, error) {
	var out []mode
	for _, want := range strings.Split(list, ",") {
		found := false
		for _, m := range modes() {
			if want != "all" && want != m.String() && want != m.name && want != m.program {
				continue
			}
			found = true
			if !slices.ContainsFunc(out, func(o mode) bool { return o.String() == m.String() }) {
				out = append(out, m)
			}
		}
		if !found {
			return nil, fmt.Errorf("-modes: %q is none of %v", want, modes())
		}
	}
	return out, nil
}

// command is how a mode is started: files it needs are written under dir.
func (m mode) command(bin, dir, server string) (argv, env []string, err error) {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: bench\ncontexts: [{name: bench, context: {cluster: bench, user: bench}}]\n"+
		"clusters: [{name: bench, cluster: {server: %q}}]\nusers: [{name: bench, user: {}}]\n", server)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return nil, nil, err
	}
	path, err := m.tools(dir)
	if err != nil {
		return nil, nil, err
	}
	// The lock of the legacy tables is per machine, not per namespace; ours is private.
	env = []string{"PATH=" + path, "HOME=" + dir, "XTABLES_LOCKFILE=" + filepath.Join(dir, "xtables.lock")}
	if m.program == report.Fairway {
		return []string{filepath.Join(bin, "fairway"), "run", "--roles", "proxy", "--kubeconfig", kubeconfig, "--node", nodeName,
			"--proxy-mode", m.asks, "--cluster-cidr", podCIDR}, env, nil
	}
	config := filepath.Join(dir, "kube-proxy.yaml")
	// All the defaults, but for the two settings that are the whole machine's.
	text = fmt.Sprintf("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\nclientConnection: {kubeconfig: %q}\n"+
		"hostnameOverride: %s\nclusterCIDR: %s\ndetectLocalMode: ClusterCIDR\nconntrack: {maxPerCore: 0, min: 0}\n",
		m.asks, kubeconfig, nodeName, podCIDR)
	return []string{filepath.Join(bin, "kube-proxy"), "--config", config}, env, os.WriteFile(config, []byte(text), 0o600)
}

// tools is a PATH on which iptables is the wanted variant.
func (m mode) tools(dir string) (string, error) {
	if m.variant == "" {
		return os.Getenv("PATH"), nil
	}
	multi := "/usr/sbin/xtables-" + m.variant + "-multi"
	if _, err := os.Stat(multi); err != nil {
		return "", fmt.Errorf("%s: %w: install the Debian package iptables", m, err)
	}
	at := filepath.Join(dir, "iptables-"+m.variant)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-restore", "-save"} {
			if err := os.Symlink(multi, filepath.Join(at, family+verb)); err != nil && !os.IsExist(err) {
				return "", err
			}
		}
	}
	return at + ":" + os.Getenv("PATH"), nil
}
