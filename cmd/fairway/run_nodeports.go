package main

import (
	"fmt"
	"log/slog"
	"strings"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
)

// nodePortsAnswer says on which addresses of this node NodePorts answer.
func nodePortsAnswer(c proxy.Config) string {
	n := c.NodePortAddresses
	list := healthAddrs(c)
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	on := strings.Join(words, ", ")
	switch {
	case on == "" && (n.Primary || len(n.CIDRs) > 0):
		on = "no address, for this machine has none of those asked for"
	case on == "":
		on = "every address of this machine"
	}
	return "NodePorts answer on " + on + " (proxy.nodePortAddresses)"
}

// tellNodePorts logs it at the start and when it changes.
func (n *nodeState) tellNodePorts(c proxy.Config) {
	if line := nodePortsAnswer(c); line != n.nodePorts {
		n.nodePorts = line
		slog.Info(line)
	}
}

// ownPorts are the TCP ports this process listens on for others than this machine, by
// what they are for.
func (c config) ownPorts() map[int]string {
	out := map[int]string{portOf(c.raw.Proxy.HealthzBindAddress): "proxy.healthzBindAddress"}
	if c.roles["dns"] {
		for _, a := range c.raw.DNS.Listen {
			out[portOf(a)] = "dns.listen"
		}
	}
	if c.roles["ingress"] {
		out[portOf(c.raw.Ingress.HTTP)], out[portOf(c.raw.Ingress.HTTPS)] = "ingress.http", "ingress.https"
	}
	return out
}

// takenPorts finds node ports that are this program's own: rules come before listeners.
func (c config) takenPorts(plan *proxy.Plan) []model.Problem {
	own := c.ownPorts()
	var out []model.Problem
	for _, sp := range plan.Ports {
		field := own[int(sp.NodePort)]
		if sp.NodePort == 0 || field == "" || sp.Proto != packet.TCP && !(field == "dns.listen" && sp.Proto == packet.UDP) {
			continue
		}
		out = append(out, model.Problem{Object: sp.Ref(), Field: "spec.ports", Reason: "NodePortTaken",
			Message: fmt.Sprintf("node port %d is also this program's own (%s), and only one of them is reached; write another, as a rule from 30000 to 32767", sp.NodePort, field)})
	}
	return out
}
