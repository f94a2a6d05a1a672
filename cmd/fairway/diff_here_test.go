package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairway/kube"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/proxy/userspace"
)

const driftObjects = `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {addresses: [{type: InternalIP, address: 172.30.0.11}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, clusterIP: 10.96.0.80, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.5], nodeName: node1}]
`

// TestUserspaceDrift: both the rules that lead to the process and those it leaves behind
// are as they should be; others are drift.
func TestUserspaceDrift(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(driftObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, _, err := (&kube.Files{Paths: []string{path}}).Read()
	if err != nil {
		t.Fatal(err)
	}
	snap, _ := model.Build(nil, objects)
	addr := netip.MustParseAddr("172.30.0.11")
	cfg := proxy.Config{Node: "node1", NodeIPs: []netip.Addr{addr}, LocalAddrs: []netip.Addr{addr}, RejectUnknownPorts: true}.WithMode(proxy.Userspace)
	plan, _ := proxy.New(nil, snap, cfg)
	empty, _ := proxy.New(nil, &model.Snapshot{}, cfg)
	for name, c := range map[string]struct {
		have  *nftables.Program
		drift bool
	}{
		"running": {userspace.Compile(nil, plan, true, userspace.Carry{}).Capture(), false},
		"ended":   {nftables.Compile(nil, userspace.Handover(plan)), false},
		"other":   {nftables.Compile(nil, userspace.Handover(empty)), true},
	} {
		lines := userspaceDrift(c.have, plan)
		if (len(lines) > 0) != c.drift {
			t.Errorf("%s: %d lines of drift: %s", name, len(lines), strings.Join(lines, "\n"))
		}
	}
}

func TestElsewhere(t *testing.T) {
	a, b := netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("172.30.0.12")
	for _, c := range []struct {
		node, local []netip.Addr
		want        bool
	}{
		{[]netip.Addr{a}, []netip.Addr{b}, true},
		{[]netip.Addr{a, b}, []netip.Addr{b}, false},
		{nil, []netip.Addr{b}, false},
	} {
		if got := elsewhere("node1", c.node, c.local); (got != "") != c.want {
			t.Errorf("%v here with %v: %q", c.node, c.local, got)
		}
	}
}
