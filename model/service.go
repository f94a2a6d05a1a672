package model

import (
	"net/netip"
	"time"

	"fairway/packet"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// ServiceType is core/v1 spec.type.
type ServiceType string

// The four types (kubectl explain service.spec.type).
const (
	ClusterIP    ServiceType = "ClusterIP"
	NodePort     ServiceType = "NodePort"
	LoadBalancer ServiceType = "LoadBalancer"
	ExternalName ServiceType = "ExternalName"
)

// Service is one Service with the endpoints its EndpointSlices list.
type Service struct {
	Name         Name
	UID          string
	Type         ServiceType
	Headless     bool   // spec.clusterIP None
	ExternalName string // only for type ExternalName, lower case, no trailing dot
	ClusterIPs   []netip.Addr
	ExternalIPs  []netip.Addr
	Ports        []Port
	Selector     map[string]string
	Labels       map[string]string
	Annotations  map[string]string
	Created      time.Time
	Deleting     bool
	Finalizers   []string

	// Status, as published.
	Ingress    []LBIngress
	Conditions []string // types of status.conditions

	LBClass             string // spec.loadBalancerClass
	LBIP                string // spec.loadBalancerIP, as written
	SourceRanges        []netip.Prefix
	HealthCheckNodePort uint16
	InternalLocal       bool          // internalTrafficPolicy: Local
	ExternalLocal       bool          // externalTrafficPolicy: Local
	Affinity            time.Duration // ClientIP affinity's timeout; 0 is none
	PublishNotReady     bool
	Distribution        string // trafficDistribution
	Families            []corev1.IPFamily
	FamilyPolicy        corev1.IPFamilyPolicy
	// HeadlessLabel is the label service.kubernetes.io/headless: no proxy serves it.
	HeadlessLabel bool

	// Endpoints is in address order, each address once per set of ports.
	Endpoints []*Endpoint

	object *corev1.Service
	slices []*discoveryv1.EndpointSlice
	legacy *corev1.Endpoints
	issues []Problem
}

// Port is one port of a Service.
type Port struct {
	Name        string
	Protocol    packet.Protocol
	Port        uint16
	TargetPort  string // number or name as written; endpoints carry the resolved number
	NodePort    uint16
	AppProtocol string
}

// LBIngress is one element of status.loadBalancer.ingress.
type LBIngress struct {
	IP       netip.Addr // invalid when only a hostname is given
	Hostname string
	// Proxy is ipMode Proxy: traffic must really leave for the balancer (KEP-1860).
	Proxy bool
}

// Endpoint is one address behind a Service.
type Endpoint struct {
	Addr        netip.Addr
	Ports       []EndpointPort
	Node        string
	Zone        string
	Hostname    string
	Pod         Name // targetRef of kind Pod, else empty
	Ready       bool
	Serving     bool
	Terminating bool
	// Unproxied says the slice carries the label service.kubernetes.io/headless: DNS
	// answers with the endpoint, no proxy forwards to it.
	Unproxied bool
	HintZones []string
	HintNodes []string
}

// EndpointPort gives the number behind a named Service port; Port 0 is no number
// given (a slice may list none).
type EndpointPort struct {
	Name     string
	Protocol packet.Protocol
	Port     uint16
}

// PortFor finds the endpoint's port for a Service port, 0 when it has none. Slices
// name ports as the Service does (discovery/v1 EndpointPort).
func (e *Endpoint) PortFor(name string, proto packet.Protocol) uint16 {
	for _, p := range e.Ports {
		if p.Name == name && p.Protocol == proto {
			return p.Port
		}
	}
	return 0
}

// Ref names the Service in a Problem.
func (s *Service) Ref() Ref { return Ref{Kind: "Service", Name: s.Name, UID: s.UID} }

// HasVIP tells whether the Service has a cluster address.
func (s *Service) HasVIP() bool {
	return s.Type != ExternalName && !s.Headless && len(s.ClusterIPs) > 0
}

// Problem makes a Problem about this Service.
func (s *Service) Problem(field, reason, message string) Problem {
	return Problem{Object: s.Ref(), Field: field, Reason: reason, Message: message}
}

// ServedBy tells whether the proxy of a name (empty: the node's own) is to serve the
// Service: the label service-proxy-name, even an empty one, hands it away (KEP-2447).
func (s *Service) ServedBy(proxy string) bool {
	name, labelled := s.Labels[labelProxyName]
	return name == proxy && labelled == (proxy != "")
}
