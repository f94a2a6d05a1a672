package matrix

import (
	"net/netip"
	"slices"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// snapshot is the cluster with a Service for each variant, in their order.
func snapshot(variants []variant) (*model.Snapshot, []model.Problem) {
	o := model.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}}}}}
	for i, v := range variants {
		o.Services = append(o.Services, v.service(i))
		o.EndpointSlices = append(o.EndpointSlices, v.slices(i)...)
	}
	return model.Build(nil, o)
}

// local is what the node's kernel says of an address.
func local(c proxy.Config) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return a.IsLoopback() || slices.Contains(c.LocalAddrs, a) || slices.Contains(c.NodeIPs, a)
	}
}

// byNode groups cells by node, each group with the Services it needs.
func byNode(cells []Cell) []group {
	var out []group
	at := map[Node]int{}
	for _, c := range cells {
		k, ok := at[c.Node]
		if !ok {
			k = len(out)
			at[c.Node] = k
			out = append(out, group{node: c.Node, place: map[variant]int{}})
		}
		out[k].add(c)
	}
	return out
}

// group is the cells of one node, and where each one's Service is.
type group struct {
	node     Node
	cells    []Cell
	variants []variant
	place    map[variant]int
}

func (g *group) add(c Cell) {
	g.cells = append(g.cells, c)
	v := c.variant()
	if _, ok := g.place[v]; !ok {
		g.place[v] = len(g.variants)
		g.variants = append(g.variants, v)
	}
}

func (g *group) packet(c Cell) packet.Packet { return c.packet(g.place[c.variant()]) }
