package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairway/lab/state"
	"fairway/lab/topology"
)

func TestSubstituteEditsTheRepositorysManifest(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/fairway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(config, []byte("dns: {ttl: 5}\nproxy: {mode: ipvs, scheduler: lc}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	lab := state.Lab{Family: topology.IPv6, ProxyMode: "iptables", Config: config}
	out, err := substitute(raw, lab)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"server: https://[fd00:30::1]:6443", "mode: iptables", "scheduler: lc", "ttl: 5",
		"clusterIP: fd00:96::a", "kind: DaemonSet"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "10.96.0.10\n") {
		t.Error("the IPv4 address of the DNS Service is still there")
	}
	if got, want := strings.Count(string(out), "\nkind: "), strings.Count(string(raw), "\nkind: "); got != want {
		t.Errorf("%d objects, the manifest has %d", got, want)
	}
	if _, err := substitute([]byte("kind: Namespace\nmetadata: {name: x}\n"), lab); err == nil {
		t.Error("a manifest without the ConfigMap was accepted")
	}
}

func TestSubstituteForAPlainProcess(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/fairway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out, err := substitute(raw, state.Lab{Family: topology.Dual, Fairway: "process", Nodes: []int{1, 3}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for _, want := range []string{"name: kube-dns-nodes-1", "name: kube-dns-nodes-2", "- 172.30.0.13", "- fd00:30::11", "nodeName: node3"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"kind: DaemonSet", "selector:"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q is still there", unwanted)
		}
	}
}

func TestConfigMode(t *testing.T) {
	if mode, err := configMode(""); err != nil || mode != "nftables" {
		t.Errorf("without a file: %q, %v", mode, err)
	}
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte("proxy: {mode: userspace}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if mode, err := configMode(file); err != nil || mode != "userspace" {
		t.Errorf("from the file: %q, %v", mode, err)
	}
	if _, err := configMode(file + ".missing"); err == nil {
		t.Error("a missing file was accepted")
	}
}

func TestParsePorts(t *testing.T) {
	if got, err := ParsePorts("api=16443,https=18443"); err != nil || got != (state.Ports{API: 16443, HTTPS: 18443}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"api", "api=", "api=0", "api=65536", "dns=53", "=1"} {
		if _, err := ParsePorts(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
