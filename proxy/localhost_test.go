package proxy_test

import (
	"net/netip"
	"testing"

	"fairway/packet"
	"fairway/proxy"
	"fairway/test/story"
)

const nodePortStory = `
-- objects.yaml --
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: NodePort
  clusterIPs: [10.96.0.80, "fd00:96::80"]
  ports:
  - {name: http, port: 80, nodePort: 30080}
  - {name: dns, port: 53, nodePort: 30053, protocol: UDP}
  - {name: sig, port: 36412, nodePort: 30412, protocol: SCTP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-4, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}, {name: sig, port: 36412, protocol: SCTP}]
endpoints: [{addresses: [10.244.1.5]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-6, labels: {kubernetes.io/service-name: shop}}
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ["fd00:244:1::5"]}]
`

// TestLocalhost: which NodePorts loopback reaches, by mode.
func TestLocalhost(t *testing.T) {
	s, err := story.Parse("localhost", []byte(nodePortStory))
	if err != nil {
		t.Fatal(err)
	}
	const four, six = "10.244.1.5:8080 masquerade", "[fd00:244:1::5]:8080 masquerade"
	all := []string{"127.0.0.1:30080/tcp", "[::1]:30080/tcp", "127.0.0.9:30080/tcp", "127.0.0.1:30053/udp", "127.0.0.1:30412/sctp"}
	for name, c := range map[string]struct {
		mode                   proxy.Mode
		LocalhostNodePorts     bool
		relay, PrimaryNodeport bool
		want                   []string
	}{
		"iptables":            {mode: proxy.IPTables, LocalhostNodePorts: true, want: []string{four, "", four, "10.244.1.5:53 masquerade", "10.244.1.5:36412 masquerade"}},
		"nftables":            {mode: proxy.NFTables, LocalhostNodePorts: true, want: []string{"", "", "", "", ""}},
		"nftables with relay": {mode: proxy.NFTables, relay: true, want: []string{four, six, "", "", ""}},
		"userspace":           {mode: proxy.Userspace, LocalhostNodePorts: true, want: []string{four, six, "", "10.244.1.5:53 masquerade", ""}},
		"userspace, off":      {mode: proxy.Userspace, want: []string{"", "", "", "", ""}},
		"primary only":        {mode: proxy.Userspace, LocalhostNodePorts: true, PrimaryNodeport: true, want: []string{"", "", "", "", ""}},
	} {
		cfg := s.Config
		cfg.LocalhostNodePorts, cfg.LocalhostRelay, cfg.NodePortAddresses.Primary = c.LocalhostNodePorts, c.relay, c.PrimaryNodeport
		snap, _ := s.Snapshot()
		plan, _ := proxy.New(nil, snap, cfg.WithMode(c.mode))
		for i, text := range all {
			to, proto := text[:len(text)-4], packet.Protocol(text[len(text)-3:])
			if proto == "ctp" {
				to, proto = text[:len(text)-5], packet.SCTP
			}
			dst := netip.MustParseAddrPort(to)
			pkt := packet.Packet{Src: dst.Addr(), Dst: dst, Proto: proto, Local: true, OnNode: true}
			v := plan.Answer(pkt)
			got := ""
			if v.Action == packet.Forward {
				got = v.Choices[0].String()
			}
			if got != c.want[i] {
				t.Errorf("%s: %s: %s, want %q", name, text, v, c.want[i])
			}
			if pkt.Local, pkt.Src = false, netip.MustParseAddr("203.0.113.2"); plan.Answer(pkt).Action == packet.Forward {
				t.Errorf("%s: %s is open to others", name, text)
			}
		}
	}
}
