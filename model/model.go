// Package model holds the nouns of the product: Kubernetes objects come in as the
// API types, one immutable Snapshot of flat values and the Problems found on the way
// go out. It never chooses endpoints, decides policy, logs, or reaches for the
// network; a Snapshot shares every unchanged value with the one before it, so pointer
// equality is change detection.
package model

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Name is a namespaced name; Namespace is empty for cluster objects.
type Name struct{ Namespace, Name string }

func (n Name) String() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// Compare orders by namespace, then name.
func (n Name) Compare(o Name) int {
	if c := cmp.Compare(n.Namespace, o.Namespace); c != 0 {
		return c
	}
	return cmp.Compare(n.Name, o.Name)
}

// Ref names an object in a Problem, an event or a condition.
type Ref struct {
	Kind string
	Name
	UID string
}

func (r Ref) String() string { return r.Kind + " " + r.Name.String() }

// Problem is something the user should know about one object: the field that is
// wrong, a CamelCase Reason (the event's reason), and a Message with the remedy.
type Problem struct {
	Object  Ref
	Field   string
	Reason  string
	Message string
}

func (p Problem) String() string {
	s := p.Object.String() + ": "
	if p.Field != "" {
		s += p.Field + ": "
	}
	return s + p.Message + " (" + p.Reason + ")"
}

// Objects is the last known state of everything read, in any order. Values are never
// changed after they are put here.
type Objects struct {
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Endpoints      []*corev1.Endpoints // used for a Service that has no slice (files only)
	Nodes          []*corev1.Node
	Pods           []*corev1.Pod
	Namespaces     []*corev1.Namespace
	Ingresses      []*networkingv1.Ingress
	IngressClasses []*networkingv1.IngressClass
	Secrets        []*corev1.Secret
	ConfigMaps     []*corev1.ConfigMap
	ServiceCIDRs   []*networkingv1.ServiceCIDR
	Pools          []*Pool // already read from metallb.io/v1beta1 by the reader
	L2             []*L2Advertisement
}

// Snapshot is the cluster's facts at one generation. Slices are sorted by name.
type Snapshot struct {
	Services   []*Service
	Nodes      []*Node
	Pods       []*Pod
	Namespaces []string
	Ingresses  []*Ingress
	Classes    []*IngressClass
	Secrets    map[Name]*Secret
	ConfigMaps map[Name]*ConfigMap
	Pools      []*Pool
	L2         []*L2Advertisement
	// ServiceCIDRs are the ranges cluster addresses are given out of, sorted.
	ServiceCIDRs []netip.Prefix
	// NamespaceLabels has an entry for every Namespace that has labels.
	NamespaceLabels map[string]map[string]string

	from sources
}

// sources are the lists the Services were built from, as they came.
type sources struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	legacy   []*corev1.Endpoints
}

// Service finds a Service by name, nil when there is none.
func (s *Snapshot) Service(n Name) *Service {
	i, ok := s.find(n)
	if !ok {
		return nil
	}
	return s.Services[i]
}

func (s *Snapshot) find(n Name) (int, bool) {
	return slices.BinarySearchFunc(s.Services, n, func(svc *Service, n Name) int { return svc.Name.Compare(n) })
}

// Node finds a Node by name, nil when there is none.
func (s *Snapshot) Node(name string) *Node {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Pod finds a Pod by name, nil when there is none.
func (s *Snapshot) Pod(n Name) *Pod {
	for _, p := range s.Pods {
		if p.Name == n {
			return p
		}
	}
	return nil
}

// Node is a machine of the cluster.
type Node struct {
	Name        string
	UID         string
	Labels      map[string]string
	InternalIPs []netip.Addr
	ExternalIPs []netip.Addr
	PodCIDRs    []netip.Prefix
	Ready       bool
	Zone        string
	// KubeletPort is where the kubelet listens on the node's addresses, 0 if not known.
	KubeletPort uint16
	// Leaving is true when the node is being deleted or carries the cluster
	// autoscaler's taint ToBeDeletedByClusterAutoscaler (KEP-3836).
	Leaving bool

	object *corev1.Node
}

// Pod is kept for names (trace, DNS) only; traffic follows EndpointSlices.
type Pod struct {
	Name        Name
	Node        string
	IPs         []netip.Addr
	Labels      map[string]string
	HostNetwork bool
	DNSPolicy   string
	// Of spec.dnsConfig: what kubelet adds to the Pod's resolv.conf. NDots 0 is not said.
	Nameservers []netip.Addr
	Searches    []string
	NDots       int
	Gone        bool // finished or being deleted: its addresses may be another's by now

	object *corev1.Pod
}

// Secret holds the bytes of a Secret that something refers to.
type Secret struct {
	Name Name
	Type string
	Data map[string][]byte

	object *corev1.Secret
}

// ConfigMap holds the text of a ConfigMap that something refers to.
type ConfigMap struct {
	Name Name
	Data map[string]string

	object *corev1.ConfigMap
}

// Pool is a MetalLB IPAddressPool (metallb.io/v1beta1): addresses to give to
// Services of type LoadBalancer.
type Pool struct {
	Name          Name
	UID           string
	Labels        map[string]string
	Ranges        []Range
	AutoAssign    bool
	AvoidBuggyIPs bool
	// Priority orders pools, lower first; 0 means last (MetalLB's serviceAllocation).
	Priority           int
	Namespaces         []string
	NamespaceSelectors []Selector
	ServiceSelectors   []Selector
	// Restricted is true when the object names namespaces or selectors at all, so that
	// selectors matching no namespace restrict the pool to nobody, not to everybody.
	Restricted bool
}

// Ref names the pool in a Problem.
func (p *Pool) Ref() Ref { return Ref{Kind: "IPAddressPool", Name: p.Name, UID: p.UID} }

// Contains tells whether a is in one of the pool's ranges.
func (p *Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(a) })
}

// Range is an inclusive range of addresses of one family.
type Range struct{ From, To netip.Addr }

// Contains tells whether a is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.From.BitLen() == a.BitLen() && r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0
}

// L2Advertisement is MetalLB's object of that name: which pools are announced by ARP
// and NDP, from which nodes and interfaces.
type L2Advertisement struct {
	Name             Name
	UID              string
	Pools            []string
	PoolSelectors    []Selector
	NodeSelectors    []Selector
	ServiceSelectors []Selector
	Interfaces       []string
}

// Ref names the advertisement in a Problem.
func (l *L2Advertisement) Ref() Ref { return Ref{Kind: "L2Advertisement", Name: l.Name, UID: l.UID} }

// Filter is the Snapshot with only the Services that keep says.
func (s *Snapshot) Filter(keep func(*Service) bool) *Snapshot {
	out := *s
	out.Services = nil
	for _, svc := range s.Services {
		if keep(svc) {
			out.Services = append(out.Services, svc)
		}
	}
	return &out
}
