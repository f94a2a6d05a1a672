package proxy

import (
	"fmt"
	"strings"
)

// Text prints the Plan, one block per ServicePort, then the health checks: what `compile --part plan`
// shows.
func (p *Plan) Text() string {
	var b strings.Builder
	for _, sp := range p.Ports {
		fmt.Fprintf(&b, "service %s %s%s\n", sp.Key, sp.Proto, family(sp.IPv6))
		if sp.ClusterIP.IsValid() {
			fmt.Fprintf(&b, "  clusterIP %s:%d\n", bracket(sp), sp.Port)
		}
		if sp.NodePort != 0 {
			fmt.Fprintf(&b, "  nodePort %d\n", sp.NodePort)
		}
		for _, a := range sp.ExternalIPs {
			fmt.Fprintf(&b, "  externalIP %s port %d\n", a, sp.Port)
		}
		for _, a := range sp.LoadBalancerIPs {
			fmt.Fprintf(&b, "  loadBalancer %s port %d\n", a, sp.Port)
		}
		sp.textRules(&b)
	}
	for _, h := range p.Health {
		fmt.Fprintf(&b, "healthCheckNodePort %d of %s: %d ready here\n", h.Port, h.Service, h.LocalReady)
	}
	return b.String()
}

func family(v6 bool) string {
	if v6 {
		return " ipv6"
	}
	return ""
}

func bracket(sp *ServicePort) string {
	if sp.IPv6 {
		return "[" + sp.ClusterIP.String() + "]"
	}
	return sp.ClusterIP.String()
}

func (p *ServicePort) textRules(b *strings.Builder) {
	if p.Restricted {
		fmt.Fprintf(b, "  sourceRanges %v\n", p.SourceRanges)
	}
	if p.InternalLocal {
		b.WriteString("  internalTrafficPolicy Local\n")
	}
	if p.ExternalLocal {
		b.WriteString("  externalTrafficPolicy Local\n")
	}
	if p.Affinity > 0 {
		fmt.Fprintf(b, "  affinity ClientIP %s\n", p.Affinity)
	}
	if p.Scheduler != "" && p.Scheduler != Random {
		fmt.Fprintf(b, "  scheduler %s\n", p.Scheduler)
	}
	if !p.HasEndpoints {
		b.WriteString("  no endpoints: reject\n")
		return
	}
	if !p.InternalLocal || p.External() {
		textList(b, "cluster", p.Cluster)
	}
	if p.InternalLocal || p.ExternalLocal && p.External() {
		textList(b, "local", p.Local)
	}
}

func textList(b *strings.Builder, name string, list []Endpoint) {
	fmt.Fprintf(b, "  %s", name)
	for _, e := range list {
		fmt.Fprintf(b, " %s", e.Addr)
	}
	if len(list) == 0 {
		b.WriteString(" none: drop")
	}
	b.WriteByte('\n')
}
