package ingress

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"fairway/model"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// The shapes of extensions/v1beta1 and networking.k8s.io/v1beta1, which the API server
// dropped in 1.22; one shape serves both, the former merely lacks some fields.
type legacyIngress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              legacySpec                 `json:"spec"`
	Status            networkingv1.IngressStatus `json:"status"`
}

type legacySpec struct {
	IngressClassName *string                   `json:"ingressClassName"`
	Backend          *legacyBackend            `json:"backend"`
	TLS              []networkingv1.IngressTLS `json:"tls"`
	Rules            []legacyRule              `json:"rules"`
}

type legacyRule struct {
	Host string `json:"host"`
	HTTP *struct {
		Paths []legacyPath `json:"paths"`
	} `json:"http"`
}

type legacyPath struct {
	Path     string                 `json:"path"`
	PathType *networkingv1.PathType `json:"pathType"`
	Backend  legacyBackend          `json:"backend"`
}

type legacyBackend struct {
	ServiceName string             `json:"serviceName"`
	ServicePort intstr.IntOrString `json:"servicePort"`
	// v1's form, which people mix in; the old API server would have dropped it.
	Service  *networkingv1.IngressServiceBackend `json:"service"`
	Resource json.RawMessage                     `json:"resource"`
}

// FromV1beta1 turns the JSON of an Ingress of extensions/v1beta1 or
// networking.k8s.io/v1beta1 into the v1 object: serviceName and servicePort become
// service.name and service.port, backend becomes defaultBackend, and a missing
// pathType ImplementationSpecific (KEP-1453). What cannot be carried over becomes a
// Problem; the object is nil only when raw is no Ingress at all.
func FromV1beta1(raw []byte) (*networkingv1.Ingress, []model.Problem) {
	var in legacyIngress
	if err := kjson.Unmarshal(raw, &in); err != nil {
		return nil, []model.Problem{{Object: model.Ref{Kind: "Ingress"}, Reason: "InvalidIngress", Message: "not an Ingress of v1beta1: " + err.Error()}}
	}
	if in.Kind != "Ingress" || in.APIVersion != "extensions/v1beta1" && in.APIVersion != "networking.k8s.io/v1beta1" {
		return nil, []model.Problem{{
			Object: model.Ref{Kind: "Ingress", Name: model.Name{Namespace: in.Namespace, Name: in.Name}}, Reason: "InvalidIngress",
			Message: fmt.Sprintf("kind %q of %q is not an Ingress of v1beta1", in.Kind, in.APIVersion),
		}}
	}
	c := &converter{ref: model.Ref{Kind: "Ingress", Name: model.Name{Namespace: in.Namespace, Name: in.Name}, UID: string(in.UID)}}
	out := &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: in.ObjectMeta, Status: in.Status,
		Spec: networkingv1.IngressSpec{IngressClassName: in.Spec.IngressClassName, TLS: in.Spec.TLS},
	}
	if in.Spec.Backend != nil {
		out.Spec.DefaultBackend = c.backend("spec.backend", *in.Spec.Backend)
	}
	for n, r := range in.Spec.Rules {
		out.Spec.Rules = append(out.Spec.Rules, c.rule(n, r))
	}
	return out, c.problems
}

type converter struct {
	ref      model.Ref
	problems []model.Problem
}

func (c *converter) problem(field, format string, args ...any) {
	c.problems = append(c.problems, model.Problem{Object: c.ref, Field: field, Reason: "InvalidIngress", Message: fmt.Sprintf(format, args...)})
}

func (c *converter) rule(n int, r legacyRule) networkingv1.IngressRule {
	out := networkingv1.IngressRule{Host: r.Host}
	if r.HTTP == nil {
		return out
	}
	out.HTTP = &networkingv1.HTTPIngressRuleValue{}
	for k, p := range r.HTTP.Paths {
		typ := networkingv1.PathTypeImplementationSpecific
		if p.PathType != nil && *p.PathType != "" {
			typ = *p.PathType
		}
		path := networkingv1.HTTPIngressPath{Path: p.Path, PathType: &typ}
		if b := c.backend(fmt.Sprintf("spec.rules[%d].http.paths[%d].backend", n, k), p.Backend); b != nil {
			path.Backend = *b
		}
		out.HTTP.Paths = append(out.HTTP.Paths, path)
	}
	return out
}

func (c *converter) backend(field string, b legacyBackend) *networkingv1.IngressBackend {
	if b.ServiceName == "" && b.Service != nil {
		c.problem(field+".service", "is v1's form in a v1beta1 object; it is read as meant, write apiVersion networking.k8s.io/v1")
		return &networkingv1.IngressBackend{Service: b.Service}
	}
	if b.ServiceName == "" {
		if len(b.Resource) > 0 {
			c.problem(field+".resource", "backends other than Services are not supported")
		} else {
			c.problem(field+".serviceName", "is missing")
		}
		return nil
	}
	out := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: b.ServiceName}}
	port := b.ServicePort
	switch {
	case port.Type == intstr.Int:
		out.Service.Port.Number = port.IntVal
	case strings.Trim(port.StrVal, "0123456789") == "" && port.StrVal != "":
		n, err := strconv.ParseUint(port.StrVal, 10, 16) // a quoted number means the number
		if err != nil {
			c.problem(field+".servicePort", "%q is not a port number", port.StrVal)
			return nil
		}
		out.Service.Port.Number = int32(n)
	default:
		// ALB's use-annotation names an action, not a port; it stays visible as a name.
		out.Service.Port.Name = port.StrVal
	}
	if out.Service.Port.Number == 0 && out.Service.Port.Name == "" {
		c.problem(field+".servicePort", "is missing")
	}
	return out
}
