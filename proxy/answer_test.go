package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/test/story"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// twoServices are web (every policy Cluster) and edge (externalTrafficPolicy Local), both
// dual-stack, with an endpoint on node1 and one on node2.
func twoServices() string {
	var b strings.Builder
	for i, s := range []string{"web", "edge"} {
		policy := []string{"Cluster", "Local"}[i]
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.0.1%d, clusterIPs: [10.96.0.1%d, "fd00:96::1%d"], externalTrafficPolicy: %s, ports: [{port: 80, nodePort: 3001%d}]}
`, s, i, i, i, policy, i)
		for _, f := range []string{"4 10.244.1.5 10.244.2.7", "6 fd00:244:1::5 fd00:244:2::7"} {
			w := strings.Fields(f)
			fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, namespace: shop, labels: {kubernetes.io/service-name: %s}}
addressType: IPv%s
ports: [{name: "", port: 80}]
endpoints: [{addresses: ["%s"], nodeName: node1}, {addresses: ["%s"], nodeName: node2}]
`, s, w[0], s, w[0], w[1], w[2])
		}
	}
	return b.String()
}

// TestSettings pins what each of the node's settings decides (table 1c and the rows on
// NodePorts of table 1b).
func TestSettings(t *testing.T) {
	const (
		kept  = "forward to 10.244.1.5:80, 10.244.2.7:80"
		masq  = "forward to 10.244.1.5:80 masquerade, 10.244.2.7:80 masquerade"
		kept6 = "forward to [fd00:244:1::5]:80, [fd00:244:2::7]:80"
		masq6 = "forward to [fd00:244:1::5]:80 masquerade, [fd00:244:2::7]:80 masquerade"
		here  = "forward to 10.244.1.5:80"
		here6 = "forward to [fd00:244:1::5]:80"
	)
	const (
		clusterCIDR = "{detectMode: ClusterCIDR, detectCIDRs: [10.244.0.0/16, 'fd00:244::/32']}"
		nodeCIDR    = "{detectMode: NodeCIDR, detectCIDRs: [10.244.1.0/24, 'fd00:244:1::/64']}"
		firstOnly   = "{detectMode: ClusterCIDR, detectCIDRs: [10.244.0.0/16, 10.245.0.0/16]}"
		bridge      = "{detectMode: BridgeInterface, detectCIDRs: [], detectInterface: cbr0}"
		prefix      = "{detectMode: InterfaceNamePrefix, detectCIDRs: [], detectInterface: veth}"
		noName      = "{detectMode: BridgeInterface, detectCIDRs: [], detectInterface: ''}"
		none        = "{detectMode: '', detectCIDRs: []}"
		all         = "{masqueradeAll: true}"
		everywhere  = "{localAddrs: [172.31.0.11]}"
		primary     = "{localAddrs: [172.31.0.11], nodePortAddresses: [primary]}"
		primary2    = "{nodeIPs: [172.30.0.11, 172.30.0.99], nodePortAddresses: [primary]}"
		primary6    = "{nodeIPs: ['fd00:30::11'], localAddrs: [172.31.0.11], nodePortAddresses: [primary]}"
		second      = "{localAddrs: [172.31.0.11], nodePortAddresses: [172.31.0.0/16]}"
		loopback    = "{localhostNodePorts: true}"
		loopback2   = "{localhostNodePorts: true, nodePortAddresses: [172.30.0.0/16]}"
		loopback3   = "{localhostNodePorts: true, nodePortAddresses: [127.0.0.0/8]}"
		loopback4   = "{localhostNodePorts: true, nodePortAddresses: [primary]}"
		unknown     = "{serviceCIDRs: [10.96.0.0/16, 'fd00:96::/112']}"
		through     = "{serviceCIDRs: [10.96.0.0/16], rejectUnknownPorts: false}"
	)
	for _, c := range []struct{ config, packet, want string }{
		// the cluster address, by who is known as a pod of this node
		{clusterCIDR, "tcp 10.244.1.9 > 10.96.0.10:80", kept},
		{clusterCIDR, "tcp 10.244.2.9 > 10.96.0.10:80", kept},
		{clusterCIDR, "tcp 203.0.113.2 > 10.96.0.10:80", masq},
		{clusterCIDR, "tcp 172.30.0.11 > 10.96.0.10:80 local", masq},
		{clusterCIDR, "tcp fd00:244:2::9 > [fd00:96::10]:80", kept6},
		{nodeCIDR, "tcp 10.244.2.9 > 10.96.0.10:80", masq},
		{nodeCIDR, "tcp fd00:244:2::9 > [fd00:96::10]:80", masq6},
		{firstOnly, "tcp 10.245.1.9 > 10.96.0.10:80", masq},
		{firstOnly, "tcp 2001:db8:9::2 > [fd00:96::10]:80", kept6},
		{bridge, "tcp 10.244.1.9 > 10.96.0.10:80 in cbr0", kept},
		{bridge, "tcp 10.244.1.9 > 10.96.0.10:80 in cbr01", masq},
		{bridge, "tcp 172.30.0.11 > 10.96.0.10:80 local", masq},
		{prefix, "tcp 10.244.1.9 > 10.96.0.10:80 in veth12", kept},
		{prefix, "tcp fd00:244:1::9 > [fd00:96::10]:80 in veth12", kept6},
		{prefix, "tcp 10.244.1.9 > 10.96.0.10:80 in eth0", masq},
		{noName, "tcp 203.0.113.2 > 10.96.0.10:80 in eth0", kept},
		{noName, "tcp 203.0.113.2 > 172.30.0.11:30011", here},
		{none, "tcp 203.0.113.2 > 10.96.0.10:80", kept},
		{none, "tcp 172.30.0.11 > 10.96.0.10:80 local", kept},
		{all, "tcp 10.244.1.9 > 10.96.0.10:80", masq},
		// masqueradeAll is about cluster addresses alone
		{all, "tcp 203.0.113.2 > 172.30.0.11:30011", here},
		{all, "tcp 10.244.1.9 > 172.30.0.11:30011", kept},
		// an endpoint of another node that reaches itself by this one
		{clusterCIDR, "tcp 10.244.2.7 > 10.96.0.10:80", "forward to 10.244.1.5:80, 10.244.2.7:80 masquerade"},
		// short-circuit of edge: without a detector nobody is a pod of this node
		{none, "tcp 10.244.1.9 > 172.30.0.11:30011", here},
		{none, "tcp 172.30.0.11 > 172.30.0.11:30011 local", masq},
		{none, "tcp 172.30.0.11 > 172.30.0.11:30011 in eth0", masq},
		{firstOnly, "tcp fd00:244:1::9 > [fd00:30::11]:30011", here6},
		{bridge, "tcp 10.244.2.9 > 172.30.0.11:30011 in cbr0", kept},
		// where NodePorts answer
		{everywhere, "tcp 203.0.113.2 > 172.31.0.11:30010", masq},
		{everywhere, "tcp 203.0.113.2 > 172.30.0.12:30010", "pass"},
		{primary, "tcp 203.0.113.2 > 172.30.0.11:30010", masq},
		{primary, "tcp 203.0.113.2 > 172.31.0.11:30010", "pass"},
		{primary2, "tcp 203.0.113.2 > 172.30.0.99:30010", "pass"},
		{primary6, "tcp 203.0.113.2 > 172.31.0.11:30010", "pass"},
		{primary6, "tcp 2001:db8:9::2 > [fd00:30::11]:30010", masq6},
		{second, "tcp 203.0.113.2 > 172.31.0.11:30010", masq},
		{second, "tcp 203.0.113.2 > 172.30.0.11:30010", "pass"},
		{second, "tcp 2001:db8:9::2 > [fd00:30::11]:30010", masq6},
		{everywhere, "tcp 127.0.0.1 > 127.0.0.1:30010 local", "pass"},
		{loopback, "tcp 127.0.0.1 > 127.0.0.1:30010 local", masq},
		{loopback, "tcp ::1 > [::1]:30010 local", "pass"},
		{loopback, "tcp 203.0.113.2 > 127.0.0.1:30010", "pass"},
		{loopback2, "tcp 127.0.0.1 > 127.0.0.1:30010 local", "pass"},
		{loopback3, "tcp 127.0.0.1 > 127.0.0.1:30010 local", masq},
		{loopback4, "tcp 127.0.0.1 > 127.0.0.1:30010 local", "pass"},
		// what nobody serves
		{unknown, "tcp 10.244.1.9 > 10.96.0.10:81", "reject"},
		{unknown, "udp 10.244.1.9 > 10.96.0.10:80", "reject"},
		{unknown, "tcp 10.244.1.9 > 10.96.0.99:80", "drop"},
		{unknown, "tcp fd00:244:1::9 > [fd00:96::99]:80", "drop"},
		{unknown, "tcp 10.244.1.9 > 10.97.0.1:80", "pass"},
		{through, "tcp 10.244.1.9 > 10.96.0.10:81", "pass"},
		{through, "tcp 10.244.1.9 > 10.96.0.99:80", "pass"},
	} {
		s, err := story.Parse("settings", []byte("-- objects.yaml --\n"+twoServices()+"-- config.yaml --\n"+c.config+"\n-- packets --\n"+c.packet+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		plan, problems := s.Plan()
		if got := plan.Answer(s.Packets[0]).String(); got != c.want || len(problems) > 0 {
			t.Errorf("%s: %s\n got %s\nwant %s\n%v", c.config, c.packet, got, c.want, problems)
		}
	}
}

// TestNodeChanges: a label of the node, or a setting that goes into ServicePorts, makes
// them anew; what prev knew is not carried over.
func TestNodeChanges(t *testing.T) {
	s := story.Load(t, "testdata/topology.txtar")
	outer := story.Load(t, "testdata/external-local.txtar")
	s.Objects.Services = append(s.Objects.Services, outer.Objects.Services[0])
	s.Objects.EndpointSlices = append(s.Objects.EndpointSlices, outer.Objects.EndpointSlices[0])
	node := func(zone string) *model.Snapshot {
		o := s.Objects
		o.Nodes = []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelTopologyZone: zone}}}}
		snap, _ := model.Build(nil, o)
		return snap
	}
	plan := func(prev *proxy.Plan, snap *model.Snapshot, change func(*proxy.Config)) *proxy.Plan {
		cfg := s.Config
		change(&cfg)
		p, _ := proxy.New(prev, snap, cfg)
		return p
	}
	keep := func(*proxy.Config) {}
	inA := plan(nil, node("a"), keep)
	for name, next := range map[string]func(prev *proxy.Plan) *proxy.Plan{
		"zone b":  func(prev *proxy.Plan) *proxy.Plan { return plan(prev, node("b"), keep) },
		"no zone": func(prev *proxy.Plan) *proxy.Plan { return plan(prev, node(""), keep) },
		"other node": func(prev *proxy.Plan) *proxy.Plan {
			return plan(prev, node("a"), func(c *proxy.Config) { c.Node = "node2" })
		},
		"no externals": func(prev *proxy.Plan) *proxy.Plan {
			return plan(prev, node("a"), func(c *proxy.Config) { c.NoExternalIPs = true })
		},
		"named": func(prev *proxy.Plan) *proxy.Plan {
			return plan(prev, node("a"), func(c *proxy.Config) { c.ProxyName = "mesh" })
		},
	} {
		got, fresh := next(inA).Text(), next(nil).Text()
		if got != fresh {
			t.Errorf("%s: with a plan before\n%swithout\n%s", name, got, fresh)
		}
		if got == inA.Text() {
			t.Errorf("%s changes nothing", name)
		}
	}
}
