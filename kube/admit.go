package kube

import (
	"fmt"
	"slices"
	"strings"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NotAdmitted is the Reason of what an API server would have refused, or filled in: of
// objects from files nobody else says so.
const NotAdmitted = "NotAdmitted"

// admit finds in the objects of files what the API server refuses, or allocates, and
// building the model does not tell. The objects are used as far as they go.
func admit(o model.Objects) []model.Problem {
	var all []model.Problem
	for _, s := range o.Services {
		a := admission{object: model.Ref{Kind: "Service", Name: keyOf(s)}}
		a.service(s)
		all = append(all, a.problems...)
	}
	for _, s := range o.EndpointSlices {
		a := admission{object: model.Ref{Kind: "EndpointSlice", Name: keyOf(s)}}
		a.slice(s)
		all = append(all, a.problems...)
	}
	for _, e := range o.Endpoints {
		a := admission{object: model.Ref{Kind: "Endpoints", Name: keyOf(e)}}
		for i, sub := range e.Subsets {
			for k, p := range sub.Ports {
				field := fmt.Sprintf("subsets[%d].ports[%d]", i, k)
				a.protocol(field, p.Protocol)
				a.port(field+".port", p.Port)
			}
		}
		all = append(all, a.problems...)
	}
	for _, i := range o.Ingresses {
		a := admission{object: model.Ref{Kind: "Ingress", Name: keyOf(i)}}
		a.ingress(i)
		all = append(all, a.problems...)
	}
	return all
}

type admission struct {
	object   model.Ref
	problems []model.Problem
}

func (a *admission) refuse(field, format string, args ...any) {
	a.problems = append(a.problems, model.Problem{Object: a.object, Field: field, Reason: NotAdmitted, Message: fmt.Sprintf(format, args...)})
}

// oneOf refuses a value that is none of an enumeration's; instead says what it counts as.
func oneOf[T ~string](a *admission, field string, v, instead T, allowed ...T) {
	if v == "" || slices.Contains(allowed, v) {
		return
	}
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = string(w)
	}
	last := len(words) - 1
	a.refuse(field, "%q is not %s or %s; it counts as %s", v, strings.Join(words[:last], ", "), words[last], instead)
}

func (a *admission) service(s *corev1.Service) {
	if bad := validation.IsDNS1123Label(s.Name); len(bad) > 0 {
		a.refuse("metadata.name", "%q is no name a Service can have: %s", s.Name, bad[0])
	}
	spec := &s.Spec
	oneOf(a, "spec.type", spec.Type, corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	oneOf(a, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster,
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	if p := spec.InternalTrafficPolicy; p != nil {
		oneOf(a, "spec.internalTrafficPolicy", *p, corev1.ServiceInternalTrafficPolicyCluster,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	oneOf(a, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		if t := *c.ClientIP.TimeoutSeconds; t < 1 || t > 86400 {
			a.refuse("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not from 1 to 86400 seconds", t)
		}
	}
	if p := spec.IPFamilyPolicy; p != nil {
		oneOf(a, "spec.ipFamilyPolicy", *p, corev1.IPFamilyPolicySingleStack,
			corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
	}
	for i, f := range spec.IPFamilies {
		oneOf(a, fmt.Sprintf("spec.ipFamilies[%d]", i), f, "nothing", corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		a.clusterIP(s)
		a.servicePorts(s)
	}
}

func (a *admission) clusterIP(s *corev1.Service) {
	none := s.Spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(s.Spec.ClusterIPs, corev1.ClusterIPNone)
	outside := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
	switch {
	case none && outside:
		a.refuse("spec.clusterIP", "a Service of type %s cannot be headless, and none of its ports is served; write an address", s.Spec.Type)
	case none || s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0:
	case outside:
		a.refuse("spec.clusterIP", "nobody allocates cluster addresses for files, and without one nothing of the Service is served, its node ports neither; write an address")
	default:
		a.refuse("spec.clusterIP", "nobody allocates cluster addresses for files, and without one the Service is not served; write an address, or None for a headless Service")
	}
	if !none && len(s.Spec.Ports) == 0 {
		a.refuse("spec.ports", "a Service that is not headless needs a port; write one")
	}
}

func (a *admission) servicePorts(s *corev1.Service) {
	type key struct {
		proto corev1.Protocol
		port  int32
	}
	ports, nodePorts, names := map[key]bool{}, map[key]bool{}, map[string]bool{}
	for i, p := range s.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		a.written(field, p.Protocol)
		proto := corev1.Protocol(strings.ToUpper(string(p.Protocol)))
		if proto == "" {
			proto = corev1.ProtocolTCP
		}
		switch {
		case p.NodePort == 0 && s.Spec.Type == corev1.ServiceTypeNodePort:
			a.refuse(field+".nodePort", "nobody allocates node ports for files, and without one port %d is not reachable from outside; write one, as a rule from 30000 to 32767", p.Port)
		case p.NodePort != 0 && s.Spec.Type != corev1.ServiceTypeNodePort && s.Spec.Type != corev1.ServiceTypeLoadBalancer:
			a.refuse(field+".nodePort", "%d: only Services of types NodePort and LoadBalancer have node ports; write type: NodePort, or take it out", p.NodePort)
		case p.NodePort != 0 && nodePorts[key{proto, p.NodePort}]:
			a.refuse(field+".nodePort", "%d is another port's of this Service too; write another", p.NodePort)
		}
		switch {
		case p.Name == "" && len(s.Spec.Ports) > 1:
			a.refuse(field+".name", "the ports of a Service with several need a name each, by which endpoints are found; write one")
		case p.Name != "" && names[p.Name]:
			a.refuse(field+".name", "%q is another port's name too; write another", p.Name)
		}
		if ports[key{proto, p.Port}] {
			a.refuse(field+".port", "%d is there twice for %s; take one out", p.Port, proto)
		}
		ports[key{proto, p.Port}], nodePorts[key{proto, p.NodePort}], names[p.Name] = true, true, true
	}
}

func (a *admission) slice(s *discoveryv1.EndpointSlice) {
	if s.Labels[discoveryv1.LabelServiceName] == "" {
		a.refuse("metadata.labels", "the label %s is missing, so the slice is no Service's and is not used; write it with the Service's name", discoveryv1.LabelServiceName)
	}
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	default:
		a.refuse("addressType", "%q is not IPv4, IPv6 or FQDN; the addresses are taken as they are written", s.AddressType)
	}
	for i, p := range s.Ports {
		field := fmt.Sprintf("ports[%d]", i)
		if p.Protocol != nil {
			a.protocol(field, *p.Protocol)
		}
		if p.Port != nil {
			a.port(field+".port", *p.Port)
		}
	}
}

// protocol refuses an endpoint port's, which building the model passes over.
func (a *admission) protocol(field string, p corev1.Protocol) {
	a.written(field, p)
	if up := corev1.Protocol(strings.ToUpper(string(p))); up != "" && up != corev1.ProtocolTCP && up != corev1.ProtocolUDP && up != corev1.ProtocolSCTP {
		a.refuse(field+".protocol", "%q is not TCP, UDP or SCTP; this port is left out", p)
	}
}

// written refuses tcp for TCP.
func (a *admission) written(field string, p corev1.Protocol) {
	switch up := corev1.Protocol(strings.ToUpper(string(p))); up {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		if p != up {
			a.refuse(field+".protocol", "%q is not TCP, UDP or SCTP; it counts as %s", p, up)
		}
	}
}

func (a *admission) port(field string, n int32) {
	if n < 1 || n > 65535 {
		a.refuse(field, "%d is not a port number (1 to 65535); this port is left out", n)
	}
}

// ingress: a value that is not known the model tells itself.
func (a *admission) ingress(i *networkingv1.Ingress) {
	for n, r := range i.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for k, p := range r.HTTP.Paths {
			if p.PathType == nil {
				a.refuse(fmt.Sprintf("spec.rules[%d].http.paths[%d].pathType", n, k),
					"is missing and counts as ImplementationSpecific; write Exact, Prefix or ImplementationSpecific")
			}
		}
	}
}
