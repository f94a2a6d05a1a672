package model

import (
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

// PathType is networking/v1 pathType.
type PathType string

// The three path types.
const (
	Exact                  PathType = "Exact"
	Prefix                 PathType = "Prefix"
	ImplementationSpecific PathType = "ImplementationSpecific"
)

// Ingress is one Ingress, v1 shape whatever version it was written in.
type Ingress struct {
	Name        Name
	UID         string
	Class       string // spec.ingressClassName
	Annotations map[string]string
	Created     time.Time
	Default     *Backend
	Rules       []Rule
	TLS         []TLS
	Addresses   []string // status, as published: IPs or hostnames

	object *networkingv1.Ingress
	issues []Problem
}

// Rule is the paths of one host; Host is lower case, empty for any host.
type Rule struct {
	Host  string
	Paths []Path
	// NoPaths marks a rule without an http section: the whole host goes to the
	// default backend.
	NoPaths bool
}

// Path sends matching requests to a Backend.
type Path struct {
	Path    string
	Type    PathType
	Backend Backend
}

// Backend names a Service port by number or by name, or another resource (nobody
// serves those; Resource then holds kind/name for the Problem).
type Backend struct {
	Service    string
	PortName   string
	PortNumber uint16
	Resource   string
}

// TLS names the Secret for some hosts.
type TLS struct {
	Hosts  []string
	Secret string
}

// IngressClass tells which controller serves a class.
type IngressClass struct {
	Name       string
	Controller string
	Default    bool
	Created    time.Time

	object *networkingv1.IngressClass
}

// Ref names the Ingress in a Problem.
func (i *Ingress) Ref() Ref { return Ref{Kind: "Ingress", Name: i.Name, UID: i.UID} }

// Problem makes a Problem about this Ingress.
func (i *Ingress) Problem(field, reason, message string) Problem {
	return Problem{Object: i.Ref(), Field: field, Reason: reason, Message: message}
}

// Selector is a metav1.LabelSelector; the zero value matches everything.
type Selector struct {
	MatchLabels map[string]string
	Expressions []Expression
}

// Expression is one matchExpressions element; Operator is In, NotIn, Exists or
// DoesNotExist.
type Expression struct {
	Key      string
	Operator string
	Values   []string
}

// Matches evaluates the selector on labels.
func (s Selector) Matches(labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.Expressions {
		if !e.matches(labels) {
			return false
		}
	}
	return true
}

func (e Expression) matches(labels map[string]string) bool {
	v, ok := labels[e.Key]
	in := ok && slices.Contains(e.Values, v)
	switch e.Operator {
	case "In":
		return in
	case "NotIn":
		return !in
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	}
	return false
}
