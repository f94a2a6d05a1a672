package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairway/packet"
	"fairway/proxy"
)

// Set is one of the ipsets.
type Set uint8

// The sets. The first are kube-proxy's; the last four hold what it gets wrong: cluster
// addresses with policy Local and no endpoint here, external ones likewise, and the
// external addresses with two lists, with the marks of pods and of the node.
const (
	LoopBack Set = iota
	ClusterIP
	ExternalIP
	ExternalIPLocal
	LoadBalancer
	LoadBalancerLocal
	LoadBalancerFW
	LoadBalancerSourceCIDR
	LoadBalancerSourceIP
	NodePortTCP
	NodePortLocalTCP
	NodePortUDP
	NodePortLocalUDP
	NodePortSCTP
	NodePortLocalSCTP
	HealthCheckNodePort
	IPVSIPs
	InternalDrop
	ExternalDrop
	AnyEndpointPod
	AnyEndpointNode
	setCount
)

func (s Set) suffix() string {
	return [...]string{"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-LOCAL",
		"LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-CIDR", "LOAD-BALANCER-SOURCE-IP", "NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP",
		"NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-SCTP-HASH", "NODE-PORT-LOCAL-SCTP-HASH", "HEALTH-CHECK-NODE-PORT",
		"IPVS-IPS", "INTERNAL-DROP", "EXTERNAL-DROP", "ANY-ENDPOINT-POD", "ANY-ENDPOINT-NODE"}[s]
}

// longest is the kernel's limit of a set's name.
const longest = 31

// Name is the set's name in a family.
func (s Set) Name(v6 bool) string {
	if !v6 {
		return "KUBE-" + s.suffix()
	}
	name := "KUBE-6-" + s.suffix()
	return name[:min(len(name), longest)]
}

// Type is the set's type; kube-proxy's for its own, so that a node can go from one to
// the other without a moment without.
func (s Set) Type() string {
	switch s {
	case LoopBack, LoadBalancerSourceIP:
		return "hash:ip,port,ip"
	case LoadBalancerSourceCIDR:
		return "hash:ip,port,net"
	case NodePortTCP, NodePortLocalTCP, NodePortUDP, NodePortLocalUDP, HealthCheckNodePort:
		return "bitmap:port"
	case IPVSIPs:
		return "hash:ip"
	}
	return "hash:ip,port"
}

// maxElements is above what any node has; kube-proxy stays with ipset's 65,536 and then
// fails.
const maxElements = 1 << 20

// Header is what follows the name when the set is created, less what the kernel may
// choose.
func (s Set) Header(v6 bool) string {
	t := s.Type()
	if t == "bitmap:port" {
		return t + " range 0-65535"
	}
	h := t + " family inet"
	if v6 {
		h += "6"
	}
	h += " maxelem " + strconv.Itoa(maxElements)
	if s.marks() {
		h += " skbinfo"
	}
	return h
}

func (s Set) marks() bool { return s == AnyEndpointPod || s == AnyEndpointNode }

// Element is one of a set; which fields count depends on the set's type.
type Element struct {
	Addr  netip.Addr
	Proto packet.Protocol
	Port  uint16
	Src   netip.Prefix
}

// Text is the element as ipset prints it.
func (e Element) Text() string {
	if !e.Addr.IsValid() {
		return strconv.Itoa(int(e.Port))
	}
	s := e.Addr.String()
	if e.Proto != "" {
		s += "," + string(e.Proto) + ":" + strconv.Itoa(int(e.Port))
	}
	switch {
	case !e.Src.IsValid():
	case e.Src.IsSingleIP():
		s += "," + e.Src.Addr().String()
	default:
		s += "," + e.Src.String()
	}
	return s
}

// ParseElement reads what Text writes.
func ParseElement(s string) (Element, error) {
	var e Element
	f := strings.Split(s, ",")
	if len(f) == 1 {
		if n, err := strconv.ParseUint(s, 10, 16); err == nil {
			e.Port = uint16(n)
			return e, nil
		}
	}
	var err error
	if e.Addr, err = netip.ParseAddr(f[0]); err != nil {
		return e, fmt.Errorf("element %q: %w", s, err)
	}
	if len(f) > 1 {
		proto, port, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return e, fmt.Errorf("element %q: %w", s, err)
		}
		e.Proto, e.Port = packet.Protocol(proto), uint16(n)
	}
	if len(f) > 2 {
		if a, err := netip.ParseAddr(f[2]); err == nil {
			e.Src = host(a)
		} else if e.Src, err = netip.ParsePrefix(f[2]); err != nil {
			return e, fmt.Errorf("element %q: %w", s, err)
		}
	}
	return e, nil
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// member is an element in a set, with its mark where the set holds marks.
type member struct {
	set  Set
	elem Element
	mark uint32
}

// members lists what a ServicePort puts into sets, those of shared sets included.
func (s settings) members(p *part) []member {
	sp := p.port
	var out []member
	add := func(set Set, e Element) { out = append(out, member{set: set, elem: e}) }
	ports := map[uint16]bool{}
	s.eachFront(sp, func(k kind, f front) {
		e := Element{Addr: f.addr, Proto: f.proto, Port: f.port}
		switch k {
		case cluster:
			add(ClusterIP, e)
			if sp.InternalLocal && sp.HasEndpoints && len(sp.Local) == 0 {
				add(InternalDrop, e)
			}
			return
		case external:
			add(pick(sp.ExternalLocal, ExternalIPLocal, ExternalIP), e)
		case balancer:
			add(LoadBalancer, e)
			if sp.ExternalLocal {
				add(LoadBalancerLocal, e)
			}
			out = append(out, s.ranges(sp, e)...)
		case nodePort:
			if set, local := nodePortSets(sp.Proto); sp.Proto == packet.SCTP || !ports[f.port] {
				ports[f.port] = true
				if sp.Proto != packet.SCTP {
					e = Element{Port: f.port}
				}
				add(set, e)
				if sp.ExternalLocal {
					add(local, e)
				}
			}
		}
		out = append(out, s.outside(p, f)...)
	})
	for e := range s.loops(sp) {
		add(LoopBack, e)
	}
	if p.health != 0 {
		add(HealthCheckNodePort, Element{Port: p.health})
	}
	return out
}

func pick(yes bool, a, b Set) Set {
	if yes {
		return a
	}
	return b
}

func nodePortSets(p packet.Protocol) (all, local Set) {
	switch p {
	case packet.UDP:
		return NodePortUDP, NodePortLocalUDP
	case packet.SCTP:
		return NodePortSCTP, NodePortLocalSCTP
	}
	return NodePortTCP, NodePortLocalTCP
}

// ranges is who may reach a restricted load balancer address. The node itself comes
// from the address.
func (s settings) ranges(sp *proxy.ServicePort, e Element) []member {
	if !sp.Restricted || !sp.HasEndpoints {
		return nil
	}
	out := []member{{set: LoadBalancerFW, elem: e}}
	for _, r := range sp.SourceRanges {
		from := e
		from.Src = r.Masked()
		out = append(out, member{set: LoadBalancerSourceCIDR, elem: from})
	}
	if sp.AdmitsNode(s.nodeIPs) {
		e.Src = host(e.Addr)
		out = append(out, member{set: LoadBalancerSourceIP, elem: e})
	}
	return out
}

// outside is what policy Local makes of an external address.
func (s settings) outside(p *part, f front) []member {
	if p.mark == 0 {
		return nil
	}
	e := Element{Addr: f.addr, Proto: f.proto, Port: f.port}
	out := []member{{AnyEndpointPod, e, p.mark}, {AnyEndpointNode, e, p.mark | s.mark}}
	if len(p.port.Local) == 0 {
		out = append(out, member{set: ExternalDrop, elem: e})
	}
	return out
}

// loops pairs every endpoint that may reach itself with its source kept with itself.
// Those of other nodes are among them: with the cluster's range as detector their pods
// count as local, and come by this node's NodePorts.
func (s settings) loops(sp *proxy.ServicePort) func(func(Element) bool) {
	cidr, known := s.detector.CIDR(s.v6)
	return func(yield func(Element) bool) {
		for i, list := range [][]proxy.Endpoint{sp.Cluster, sp.Local} {
			for _, e := range list {
				a := e.Addr.Addr()
				if known && !e.OnNode && !cidr.Contains(a) || i == 1 && holds(sp.Cluster, e.Addr) {
					continue
				}
				if !yield(Element{Addr: a, Proto: sp.Proto, Port: e.Addr.Port(), Src: host(a)}) {
					return
				}
			}
		}
	}
}

func holds(sorted []proxy.Endpoint, a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, a, func(e proxy.Endpoint, a netip.AddrPort) int { return e.Addr.Compare(a) })
	return found
}

func (e Element) compare(o Element) int {
	return cmp.Or(e.Addr.Compare(o.Addr), strings.Compare(string(e.Proto), string(o.Proto)), cmp.Compare(e.Port, o.Port),
		e.Src.Addr().Compare(o.Src.Addr()), cmp.Compare(e.Src.Bits(), o.Src.Bits()))
}
