// Package proxy decides, once for every kernel backend, what this node does with each
// Service: a Snapshot and this node's settings go in, a Plan goes out whose frontends
// have their endpoints already chosen (traffic policies, topology, terminating
// fall-back, masquerade), with the Problems met. Plan.Answer is the oracle every
// backend is checked against. It never writes a rule and never asks the kernel.
package proxy

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"fairway/model"
	"fairway/packet"
)

// Config is what this node was told about itself.
type Config struct {
	Node string
	// NodeIPs are the node's own addresses, the primary one of each family first.
	NodeIPs []netip.Addr
	// LocalAddrs are all addresses on the node's interfaces; only Answer uses them,
	// the backends ask the kernel (fib, addrtype).
	LocalAddrs []netip.Addr
	Detector   Detector
	// MasqueradeAll masquerades all traffic to cluster addresses.
	MasqueradeAll bool
	// MasqueradeBit is the bit of the packet mark that asks for masquerade (14).
	MasqueradeBit uint8
	// NodePortAddresses selects the addresses NodePorts answer on.
	NodePortAddresses NodePortAddresses
	// LocalhostNodePorts lets loopback reach NodePorts: 127.0.0.0/8 in iptables mode, and
	// 127.0.0.1 and ::1 in userspace mode; the others' rules cannot.
	LocalhostNodePorts bool
	// LocalhostRelay has listeners of this process serve the TCP NodePorts on 127.0.0.1
	// and ::1, in modes whose rules cannot (KEP-6032).
	LocalhostRelay bool
	// RejectUnknownPorts rejects packets to a live cluster address on a port no
	// Service has (nftables mode; iptables lets them fall through).
	RejectUnknownPorts bool
	// ServiceCIDRs, when known, makes unallocated cluster addresses drop. None are the
	// Snapshot's; a Plan's are without those that have nodes or Pods in them.
	ServiceCIDRs []netip.Prefix
	// APIServers are the addresses this program was told to reach the API server by; no
	// externalIP or load balancer address may stand in their way.
	APIServers []netip.AddrPort
	// Mode is the backend the Plan is for: what it cannot do, the Plan does not ask for.
	Mode Mode
	// Scheduler is the node's choice for Services that ask for none; empty is the
	// mode's default.
	Scheduler Scheduler
	// NoExternalIPs leaves spec.externalIPs out (gate AllowServiceExternalIPs, KEP-5707).
	NoExternalIPs bool
	// ProxyName is the value of service.kubernetes.io/service-proxy-name served here.
	ProxyName string
}

// Detector tells pods of this node from everybody else (kube-proxy's
// --detect-local-mode).
type Detector struct {
	Mode DetectMode
	// CIDRs holds at most one prefix per family (ClusterCIDR, NodeCIDR).
	CIDRs []netip.Prefix
	// Interface is a bridge's name or a prefix of pod interfaces' names.
	Interface string
}

// DetectMode names how local pods are known.
type DetectMode string

// The four modes; empty is none, which turns the rules that need it off.
const (
	DetectNone                DetectMode = ""
	DetectClusterCIDR         DetectMode = "ClusterCIDR"
	DetectNodeCIDR            DetectMode = "NodeCIDR"
	DetectBridgeInterface     DetectMode = "BridgeInterface"
	DetectInterfaceNamePrefix DetectMode = "InterfaceNamePrefix"
)

// CIDR is the detector's prefix for a family, false when it has none.
func (d Detector) CIDR(v6 bool) (netip.Prefix, bool) {
	if d.Mode != DetectClusterCIDR && d.Mode != DetectNodeCIDR {
		return netip.Prefix{}, false
	}
	for _, c := range d.CIDRs {
		if c.Addr().Is6() == v6 {
			return c, true
		}
	}
	return netip.Prefix{}, false
}

// Implemented tells whether the detector can tell anything for a family.
func (d Detector) Implemented(v6 bool) bool {
	switch d.Mode {
	case DetectClusterCIDR, DetectNodeCIDR:
		_, ok := d.CIDR(v6)
		return ok
	case DetectBridgeInterface, DetectInterfaceNamePrefix:
		return d.Interface != ""
	}
	return false
}

// Local tells whether a packet comes from a pod of this node.
func (d Detector) Local(p packet.Packet) bool {
	if c, ok := d.CIDR(p.Src.Is6()); ok {
		return c.Contains(p.Src)
	}
	switch d.Mode {
	case DetectBridgeInterface:
		return d.Interface != "" && p.In == d.Interface
	case DetectInterfaceNamePrefix:
		return d.Interface != "" && strings.HasPrefix(p.In, d.Interface)
	}
	return false
}

// NodePortAddresses is kube-proxy's --nodeport-addresses: everything local, the
// primary node addresses, or what lies in some CIDRs. A family without a CIDR keeps
// all its addresses.
type NodePortAddresses struct {
	Primary bool
	CIDRs   []netip.Prefix
}

// Plan is this node's part: the frontends in a fixed order and the node's settings.
type Plan struct {
	Config Config
	// Ports is sorted by Service name, then port name, protocol and family.
	Ports []*ServicePort
	// Health is the health-check NodePorts to serve, by Service name.
	Health []HealthCheck

	// services are the snapshot's, ports[i] what services[i] has, lost frontends and all.
	services []*model.Service
	ports    [][]*ServicePort
	zone     string
	claims
}

// Key names a ServicePort in events, chain names and comments: `ns/svc:port`, or
// `ns/svc` when the port has no name.
type Key struct {
	Service  model.Name
	PortName string
	Proto    packet.Protocol
	IPv6     bool
}

func (k Key) String() string {
	if k.PortName == "" {
		return k.Service.String()
	}
	return k.Service.String() + ":" + k.PortName
}

// ServicePort is one port of one Service in one family. It is never changed: a new
// Plan shares it while its Service is the same, so backends may keep what they
// compiled from it by pointer.
type ServicePort struct {
	Key
	ClusterIP netip.Addr
	Port      uint16
	NodePort  uint16 // 0 is none
	// ExternalIPs and LoadBalancerIPs are reached at Port.
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	// SourceRanges restricts LoadBalancerIPs, and only those, when Restricted: a Service
	// with ranges of the other family only is open in this one, as in kube-proxy.
	SourceRanges []netip.Prefix
	Restricted   bool
	// InternalLocal and ExternalLocal are the traffic policies.
	InternalLocal, ExternalLocal bool
	Affinity                     time.Duration
	// Scheduler is one the mode has.
	Scheduler Scheduler
	// Cluster and Local are the endpoints to choose from, sorted by address.
	// Cluster is empty when nothing needs it, likewise Local.
	Cluster, Local []Endpoint
	// HasEndpoints is true when any endpoint anywhere is usable: without one,
	// packets are rejected; with one that this node may not use, dropped.
	HasEndpoints bool

	serviceUID string
	created    time.Time
	refused    string // the scheduler asked for that the mode does not have
}

// Endpoint is one place a flow may go.
type Endpoint struct {
	Addr netip.AddrPort
	// OnNode says the endpoint runs on this node (hairpin can only happen there).
	OnNode bool
	Pod    model.Name
}

// External tells whether the port is reachable by anything but its cluster address.
func (p *ServicePort) External() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.LoadBalancerIPs) > 0
}

// Internal is the list cluster-internal traffic uses.
func (p *ServicePort) Internal() []Endpoint {
	if p.InternalLocal {
		return p.Local
	}
	return p.Cluster
}

// FromOutside is the list traffic from outside uses.
func (p *ServicePort) FromOutside() []Endpoint {
	if p.ExternalLocal {
		return p.Local
	}
	return p.Cluster
}

// Ref names the Service in a Problem.
func (p *ServicePort) Ref() model.Ref {
	return model.Ref{Kind: "Service", Name: p.Service, UID: p.serviceUID}
}

// HealthCheck is a healthCheckNodePort (core/v1, for externalTrafficPolicy Local).
type HealthCheck struct {
	Service model.Name
	UID     string
	Port    uint16
	// LocalReady counts distinct ready addresses on this node; terminating ones
	// never count.
	LocalReady int
}

// New makes the Plan of cfg.Node. ServicePorts of unchanged Services are shared with
// prev (nil at first) as long as nothing about this node changed.
func New(prev *Plan, snap *model.Snapshot, cfg Config) (*Plan, []model.Problem) {
	if len(cfg.ServiceCIDRs) == 0 {
		cfg.ServiceCIDRs = snap.ServiceCIDRs
	}
	var problems []model.Problem
	cfg.ServiceCIDRs, problems = cfg.spare(snap)
	p := &Plan{Config: cfg, services: snap.Services, ports: make([][]*ServicePort, 0, len(snap.Services))}
	if n := snap.Node(cfg.Node); n != nil {
		p.zone = n.Zone
	}
	kept := &Plan{}
	if prev != nil && prev.zone == p.zone && prev.Config.same(cfg) {
		kept = prev
	}
	p.Ports = make([]*ServicePort, 0, len(kept.Ports)+1)
	next := 0 // in kept.services, which as a rule are the same
	for _, svc := range snap.Services {
		for next < len(kept.services) && kept.services[next] != svc && kept.services[next].Name.Compare(svc.Name) < 0 {
			next++
		}
		var ports []*ServicePort
		if next < len(kept.services) && kept.services[next] == svc {
			ports = kept.ports[next]
		} else {
			ports = p.servicePorts(svc)
			share(ports, kept.portsOf(svc.Name))
		}
		p.ports = append(p.ports, ports)
		p.Ports = append(p.Ports, ports...)
		if svc.HealthCheckNodePort != 0 && len(ports) > 0 && svc.Type == model.LoadBalancer && svc.ExternalLocal {
			p.Health = append(p.Health, healthCheck(svc, cfg.Node))
		}
	}
	problems = append(problems, p.schedulerProblems()...)
	return p, append(problems, p.claim(kept, newGuard(snap, p))...)
}

// portsOf are the ports of a Service of this name, whichever it was.
func (p *Plan) portsOf(n model.Name) []*ServicePort {
	i, ok := p.find(n)
	if !ok {
		return nil
	}
	return p.ports[i]
}

func (p *Plan) find(n model.Name) (int, bool) {
	return slices.BinarySearchFunc(p.services, n, func(s *model.Service, n model.Name) int { return s.Name.Compare(n) })
}

// share replaces ports by the old ones of equal value: a change of an annotation, or of
// the other family's endpoints, is none to the rules.
func share(ports, old []*ServicePort) {
	for i, sp := range ports {
		for _, o := range old {
			if o.Key == sp.Key && reflect.DeepEqual(o, sp) {
				ports[i] = o
			}
		}
	}
}

// same tells whether what went into ServicePorts is unchanged.
func (c Config) same(o Config) bool {
	return c.Node == o.Node && c.ProxyName == o.ProxyName && c.NoExternalIPs == o.NoExternalIPs && c.Mode == o.Mode && c.Scheduler == o.Scheduler
}

// healthCheck counts in the Service's first family: a dual-stack Pod weighs no more than
// another.
func healthCheck(svc *model.Service, node string) HealthCheck {
	v6 := svc.ClusterIPs[0].Is6()
	addrs := map[netip.Addr]bool{}
	for _, e := range svc.Endpoints {
		if e.Ready && !e.Unproxied && e.Addr.Is6() == v6 && e.Node == node && node != "" {
			addrs[e.Addr] = true
		}
	}
	return HealthCheck{Service: svc.Name, UID: svc.UID, Port: svc.HealthCheckNodePort, LocalReady: len(addrs)}
}

func (p *Plan) servicePorts(svc *model.Service) []*ServicePort {
	if !svc.HasVIP() || !svc.ServedBy(p.Config.ProxyName) || svc.HeadlessLabel {
		return nil
	}
	var out []*ServicePort
	for _, port := range svc.Ports {
		for _, vip := range svc.ClusterIPs {
			out = append(out, p.servicePort(svc, port, vip))
		}
	}
	slices.SortFunc(out, func(a, b *ServicePort) int { return a.Key.compare(b.Key) })
	return out
}

func (k Key) compare(o Key) int {
	if c := k.Service.Compare(o.Service); c != 0 {
		return c
	}
	if c := strings.Compare(k.PortName, o.PortName); c != 0 {
		return c
	}
	if c := strings.Compare(string(k.Proto), string(o.Proto)); c != 0 {
		return c
	}
	if k.IPv6 == o.IPv6 {
		return 0
	}
	if o.IPv6 {
		return -1
	}
	return 1
}

func (p *Plan) servicePort(svc *model.Service, port model.Port, vip netip.Addr) *ServicePort {
	v6 := vip.Is6()
	sp := &ServicePort{
		Key:       Key{svc.Name, port.Name, port.Protocol, v6},
		ClusterIP: vip, Port: port.Port, NodePort: port.NodePort,
		ExternalIPs: ofFamily(svc.ExternalIPs, v6), LoadBalancerIPs: lbIPs(svc, v6),
		InternalLocal: svc.InternalLocal, ExternalLocal: svc.ExternalLocal, Affinity: svc.Affinity,
		serviceUID: svc.UID, created: svc.Created,
	}
	if p.Config.NoExternalIPs {
		sp.ExternalIPs = nil
	}
	sp.restrict(svc.SourceRanges, v6)
	sp.Scheduler, sp.refused = p.Config.scheduler(svc)
	p.choose(sp, svc)
	return sp
}

// restrict keeps this family's ranges; one of length 0 lifts the restriction.
func (p *ServicePort) restrict(ranges []netip.Prefix, v6 bool) {
	for _, r := range ranges {
		if r.Addr().Is6() != v6 {
			continue
		}
		if r.Bits() == 0 {
			p.SourceRanges, p.Restricted = nil, false
			return
		}
		p.SourceRanges = append(p.SourceRanges, r)
		p.Restricted = true
	}
}

func ofFamily(addrs []netip.Addr, v6 bool) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if a.Is6() == v6 && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func lbIPs(svc *model.Service, v6 bool) []netip.Addr {
	if svc.Type != model.LoadBalancer {
		return nil
	}
	var all []netip.Addr
	for _, in := range svc.Ingress {
		if in.IP.IsValid() && !in.Proxy {
			all = append(all, in.IP)
		}
	}
	return ofFamily(all, v6)
}
