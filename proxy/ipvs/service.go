package ipvs

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairway/packet"
	"fairway/proxy"
)

// ServiceKey names a virtual service: by protocol, address and port, or by a firewall
// mark and family.
type ServiceKey struct {
	Proto packet.Protocol
	Addr  netip.AddrPort
	Mark  uint32
	V6    bool
}

// Compare orders keys: addresses first, then marks.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(cmp.Compare(k.Mark, o.Mark), k.Addr.Compare(o.Addr), strings.Compare(string(k.Proto), string(o.Proto)))
}

// Options is how a virtual service chooses.
type Options struct {
	Scheduler string
	// Persist is how long a client keeps its destination, in seconds; 0 is not at all.
	Persist uint32
	// Fallback makes a hashing scheduler choose again when the hash leads to a
	// destination that takes nothing new.
	Fallback bool
}

// Service is a virtual service as it should be. All destinations have weight 1 and are
// reached by NAT (ipvsadm's -m).
type Service struct {
	Key ServiceKey
	Options
	To []netip.AddrPort
	// Port is whose it is.
	Port *proxy.ServicePort
}

// Fronts are the addresses a ServicePort answers on, by kind.
type kind uint8

const (
	cluster kind = iota
	external
	balancer
	nodePort
)

// eachFront calls do for every address of a ServicePort once; a load balancer's that is
// an external IP as well counts as the former.
func (s settings) eachFront(sp *proxy.ServicePort, do func(kind, front)) {
	if sp.ClusterIP.IsValid() {
		do(cluster, front{sp.ClusterIP, sp.Port, sp.Proto})
	}
	for _, a := range sp.LoadBalancerIPs {
		do(balancer, front{a, sp.Port, sp.Proto})
	}
	for _, a := range sp.ExternalIPs {
		if !slices.Contains(sp.LoadBalancerIPs, a) {
			do(external, front{a, sp.Port, sp.Proto})
		}
	}
	if sp.NodePort == 0 {
		return
	}
	for _, a := range s.nodePorts {
		if f := (front{a, sp.NodePort, sp.Proto}); !s.claimed[f] {
			do(nodePort, f)
		}
	}
}

// services writes a ServicePort's virtual services out. One without endpoints has them
// too, empty: IPVS answers "port unreachable", and connections to endpoints that are on
// their way out keep going.
func (s settings) services(p *part) []Service {
	sp := p.port
	o := options(sp)
	inside, outside, all := addresses(sp.Internal()), addresses(sp.FromOutside()), addresses(sp.Cluster)
	if !sp.HasEndpoints {
		inside, outside, all = nil, nil, nil
	}
	var out []Service
	s.eachFront(sp, func(k kind, f front) {
		to := outside
		if k == cluster {
			to = inside
		}
		key := ServiceKey{Proto: f.proto, Addr: netip.AddrPortFrom(f.addr, f.port), V6: s.v6}
		out = append(out, Service{key, o, to, sp})
	})
	if p.mark != 0 {
		for _, m := range []uint32{p.mark, p.mark | s.mark} {
			out = append(out, Service{ServiceKey{Mark: m, V6: s.v6}, o.ofMark(), all, sp})
		}
	}
	return out
}

func addresses(list []proxy.Endpoint) []netip.AddrPort {
	out := make([]netip.AddrPort, len(list))
	for i, e := range list {
		out[i] = e.Addr
	}
	return out
}

func options(sp *proxy.ServicePort) Options {
	o := Options{Scheduler: string(sp.Scheduler)}
	if sp.Scheduler == "" || sp.Scheduler == proxy.Random {
		o.Scheduler = string(proxy.RoundRobin)
	}
	o.Fallback = sp.Scheduler == proxy.SourceHash || sp.Scheduler == proxy.Maglev
	if sp.Affinity > 0 {
		o.Persist = max(1, uint32(sp.Affinity/time.Second))
	}
	return o
}

// ofMark is the options for a service of a mark. With -p the kernel sends to the port the
// packet came with, whatever the destination's is (ip_vs_sched_persist: a mark has no
// port to compare), so there a client keeps its destination by a hash of its address: the
// consistent one, which moves nearly no other client when a destination goes.
func (o Options) ofMark() Options {
	if o.Persist == 0 {
		return o
	}
	return Options{Scheduler: string(proxy.Maglev), Fallback: true}
}

// Graceful tells whether connections outlive the destination that is taken out: its
// weight becomes 0 and it goes with the last of them. Datagrams have no last one. The
// destination hash has no way around a destination of weight 0 that is still there.
func (s Service) Graceful() bool { return graceful(s.Key.Proto, s.Scheduler, s.Port) }

func graceful(proto packet.Protocol, scheduler string, sp *proxy.ServicePort) bool {
	if proto == "" && sp != nil {
		proto = sp.Proto // of a mark
	}
	return proto == packet.TCP && scheduler != string(proxy.DestinationHash)
}

// Text is the key as ipvsadm takes it.
func (k ServiceKey) Text() string {
	switch {
	case k.Mark != 0 && k.V6:
		return "-f " + strconv.FormatUint(uint64(k.Mark), 10) + " -6"
	case k.Mark != 0:
		return "-f " + strconv.FormatUint(uint64(k.Mark), 10)
	case k.Proto == packet.UDP:
		return "-u " + k.Addr.String()
	case k.Proto == packet.SCTP:
		return "--sctp-service " + k.Addr.String()
	}
	return "-t " + k.Addr.String()
}

// Text is the options as ipvsadm takes them.
func (o Options) Text() string {
	s := "-s " + o.Scheduler
	if o.Persist > 0 {
		s += " -p " + strconv.FormatUint(uint64(o.Persist), 10)
	}
	if o.Fallback {
		s += " -b " + o.Scheduler + "-fallback"
	}
	return s
}
