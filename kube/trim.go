package kube

import (
	"strings"
	intern "unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// trim drops what no room reads, before the object is kept: managed fields, the image
// list of a Node, the body of a Pod. A node's memory is mostly endpoints, so what is kept
// of those lies close together.
func trim(obj any) {
	switch o := obj.(type) {
	case *corev1.Node:
		o.ManagedFields = nil
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	case *corev1.Pod:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork, DNSPolicy: o.Spec.DNSPolicy, DNSConfig: o.Spec.DNSConfig}
		o.Status = corev1.PodStatus{PodIP: o.Status.PodIP, PodIPs: o.Status.PodIPs, Phase: o.Status.Phase}
	case *discoveryv1.EndpointSlice:
		trimSlice(o)
	case metav1.Object:
		o.SetManagedFields(nil)
		o.SetOwnerReferences(nil)
	}
}

// trimSlice keeps of an EndpointSlice what the model reads, in as few pieces as can be:
// decoding leaves more than ten for each endpoint, most of them to say again what the
// endpoint before it said.
func trimSlice(s *discoveryv1.EndpointSlice) {
	if s.OwnerReferences != nil && len(s.OwnerReferences) == 0 {
		return // the sign left below: decoding leaves nil
	}
	labels := make(map[string]string, 1)
	for _, k := range []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		if v, ok := s.Labels[k]; ok {
			labels[k] = v
		}
	}
	s.Labels, s.ManagedFields, s.OwnerReferences, s.GenerateName = labels, nil, []metav1.OwnerReference{}, ""
	list := make([]discoveryv1.Endpoint, len(s.Endpoints)) // decoding left room for more
	text := newText(s)
	yes, no := ptr.To(true), ptr.To(false)
	shared := func(b *bool) *bool {
		switch {
		case b == nil:
			return nil
		case *b:
			return yes
		}
		return no
	}
	places := make([]string, 0, 2*len(list))
	place := func(p *string) *string {
		if p == nil {
			return nil
		}
		if n := len(places); n >= 2 && places[n-2] == *p { // the same node or zone again
			return &places[n-2]
		}
		places = append(places, intern.Make(*p).Value())
		return &places[len(places)-1]
	}
	refs := make([]corev1.ObjectReference, 0, len(list))
	for i, e := range s.Endpoints {
		c := e.Conditions
		e.Conditions = discoveryv1.EndpointConditions{Ready: shared(c.Ready), Serving: shared(c.Serving), Terminating: shared(c.Terminating)}
		e.NodeName, e.Zone, e.DeprecatedTopology = place(e.NodeName), place(e.Zone), nil
		e.Addresses = text.keep(e.Addresses)
		if t := e.TargetRef; t != nil {
			refs = append(refs, corev1.ObjectReference{Kind: intern.Make(t.Kind).Value(), Namespace: intern.Make(t.Namespace).Value(), Name: text.one(t.Name)})
			e.TargetRef = &refs[len(refs)-1]
		}
		list[i] = e
	}
	s.Endpoints = list
}

// text holds the addresses and Pod names of a slice in one string.
type text struct {
	all  string
	list []string
}

func newText(s *discoveryv1.EndpointSlice) *text {
	var b strings.Builder
	n := 0
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			b.WriteString(a)
			n++
		}
		if e.TargetRef != nil {
			b.WriteString(e.TargetRef.Name)
		}
	}
	return &text{all: b.String(), list: make([]string, 0, n)}
}

// one is s, of which the text goes on.
func (t *text) one(s string) string {
	kept := t.all[:len(s)]
	t.all = t.all[len(s):]
	return kept
}

func (t *text) keep(list []string) []string {
	start := len(t.list)
	for _, s := range list {
		t.list = append(t.list, t.one(s))
	}
	return t.list[start:len(t.list):len(t.list)]
}
