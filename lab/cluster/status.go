package cluster

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"fairway/lab/state"
	"fairway/lab/topology"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status prints what the lab is, what of it runs and how to reach it.
func (l Lab) Status(ctx context.Context, out io.Writer) error {
	lab, err := l.Dir.Load()
	if err != nil {
		return fmt.Errorf("no lab to show; `fairway-lab list` shows those there are: %w", err)
	}
	proxy := "Fairway as " + lab.Fairway
	switch {
	case lab.Peer != "":
		proxy = lab.Peer
	case lab.Fairway == "none":
		proxy = "none"
	}
	fmt.Fprintf(out, "lab %s: %s, service proxy: %s, mode %s\n\n", l.Dir.Name, lab.Family, proxy, lab.ProxyMode)
	nodes := l.nodeStates(ctx)
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, name := range []string{state.ProcFabric, state.ProcControlPlane} {
		fmt.Fprintf(table, "%s\t%s\t%s\t\n", name, l.processState(name), topology.Join(lab.Family.Fabric()))
	}
	for _, n := range lab.Nodes {
		name := topology.NodeName(n)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, l.processState(name), topology.Join(lab.Family.Node(n)), nodes[name])
	}
	fmt.Fprintf(table, "client\t\t%s\toutside the cluster\n", topology.Join(lab.Family.Client()))
	fmt.Fprintf(table, "router\t\t%s\toutside the cluster\n", topology.Join(lab.Family.Router()))
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, `
API server   https://127.0.0.1:%d   KUBECONFIG=%s
Ingress      http://127.0.0.1:%d  https://127.0.0.1:%d
pool         172.30.0.100-172.30.0.150 is free for LoadBalancer addresses
names        %s: what the LAN's resolver knows
logs         %s
`, lab.Ports.API, l.Dir.Kubeconfig(), lab.Ports.HTTP, lab.Ports.HTTPS, l.Dir.Hosts(), l.Dir.Path("logs"))
	if !l.Running() {
		return fmt.Errorf("lab %s is not running; `fairway-lab up` starts it anew, `fairway-lab down` removes it", l.Dir.Name)
	}
	return l.hasControlPlane()
}

func (l Lab) processState(name string) string {
	p := l.Dir.Process(name)
	if !p.Alive() {
		return "off"
	}
	return fmt.Sprintf("pid %d", p.PID)
}

// nodeStates asks the API server; no answer is an empty map.
func (l Lab) nodeStates(ctx context.Context) map[string]string {
	states := map[string]string{}
	client, err := l.client()
	if err != nil {
		return states
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return states
	}
	for _, n := range list.Items {
		states[n.Name] = nodeState(n)
	}
	return states
}
