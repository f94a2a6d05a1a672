// Package kube is the only importer of client-go. Objects come in from an API server
// or from manifest files and are kept, the last one per key; Problems, status and
// events go out. It decides nothing about traffic.
package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"fairway/ingress"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode reads the YAML or JSON documents of one file (or a List in one). A document
// that cannot be read is a Problem that names the file, the document's number and the
// line; the others are used. Kinds this program has no use for are passed over.
func Decode(file string, data []byte) (model.Objects, []model.Problem) {
	d := &decoder{file: file}
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		d.doc++
		if err != nil {
			d.problem("", "UnreadableDocument", err.Error())
			break
		}
		d.document(doc)
	}
	return d.out, d.problems
}

type decoder struct {
	file     string
	doc      int
	out      model.Objects
	problems []model.Problem
}

func (d *decoder) problem(field, reason, message string) {
	d.problems = append(d.problems, model.Problem{
		Object: model.Ref{Kind: "File", Name: model.Name{Name: fmt.Sprintf("%s document %d", d.file, d.doc)}},
		Field:  field, Reason: reason, Message: message,
	})
}

func (d *decoder) document(doc []byte) {
	raw, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		d.problem("", "UnreadableDocument", "left out: "+strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if bytes.Equal(raw, []byte("null")) {
		return // only comments
	}
	d.object(raw)
}

type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func (d *decoder) object(raw []byte) {
	var h head
	if err := json.Unmarshal(raw, &h); err != nil || h.Kind == "" {
		d.problem("kind", "UnreadableDocument", "left out: not a Kubernetes object (no kind)")
		return
	}
	if strings.HasSuffix(h.Kind, "List") && h.Items != nil {
		for _, item := range h.Items {
			d.object(item)
		}
		return
	}
	if h.Metadata.Name == "" {
		d.problem("metadata.name", "UnreadableDocument", h.Kind+" left out: it has no name")
		return
	}
	d.typed(h, raw)
}

func (d *decoder) typed(h head, raw []byte) {
	o := &d.out
	switch h.APIVersion + " " + h.Kind {
	case "v1 Service":
		add(d, raw, &o.Services)
	case "discovery.k8s.io/v1 EndpointSlice":
		add(d, raw, &o.EndpointSlices)
	case "v1 Endpoints":
		add(d, raw, &o.Endpoints)
	case "v1 Node":
		add(d, raw, &o.Nodes)
	case "v1 Pod":
		add(d, raw, &o.Pods)
	case "v1 Namespace":
		add(d, raw, &o.Namespaces)
	case "networking.k8s.io/v1 Ingress":
		add(d, raw, &o.Ingresses)
	case "networking.k8s.io/v1 IngressClass", "networking.k8s.io/v1beta1 IngressClass":
		add(d, raw, &o.IngressClasses)
	case "networking.k8s.io/v1 ServiceCIDR", "networking.k8s.io/v1beta1 ServiceCIDR":
		add(d, raw, &o.ServiceCIDRs)
	case "v1 Secret":
		add(d, raw, &o.Secrets)
	case "v1 ConfigMap":
		add(d, raw, &o.ConfigMaps)
	case "networking.k8s.io/v1beta1 Ingress", "extensions/v1beta1 Ingress":
		ing, problems := ingress.FromV1beta1(raw)
		d.problems = append(d.problems, problems...)
		if ing != nil {
			defaultNamespace(ing)
			o.Ingresses = append(o.Ingresses, ing)
		}
	case metallbVersion + " IPAddressPool":
		addRead(d, raw, ReadPool, &o.Pools)
	case metallbVersion + " L2Advertisement":
		addRead(d, raw, ReadL2, &o.L2)
	default:
		if what := misspelt(h.APIVersion, h.Kind); what != "" {
			d.problem("kind", "UnreadableDocument", h.Metadata.Name+" left out: "+what)
		}
	}
}

// addRead adds an object of a kind that is read straight into the model.
func addRead[T any](d *decoder, raw []byte, read func([]byte) (*T, []model.Problem), list *[]*T) {
	v, problems := read(raw)
	d.problems = append(d.problems, problems...)
	if v != nil {
		*list = append(*list, v)
	}
}

// object is what every API type used here offers through its ObjectMeta.
type object interface {
	GetNamespace() string
	SetNamespace(string)
	GetName() string
}

// add reads one typed object. A misspelt field is told but does not lose the object.
func add[T any, P interface {
	*T
	object
}](d *decoder, raw []byte, list *[]P) {
	obj := P(new(T))
	// As the API server reads: names are case-sensitive.
	strict, err := kjson.UnmarshalStrict(raw, obj)
	if err != nil {
		d.problem("", "UnreadableDocument", "left out: "+err.Error())
		return
	}
	for _, e := range strict {
		d.problem("", "UnknownField", e.Error()+" in "+obj.GetName()+"; it is ignored, check its spelling")
	}
	defaultNamespace(obj)
	*list = append(*list, obj)
}

// defaultNamespace does what kubectl does with an object that names none.
func defaultNamespace(o object) {
	switch o.(type) {
	case *corev1.Node, *corev1.Namespace, *networkingv1.IngressClass, *networkingv1.ServiceCIDR:
		return
	}
	if o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
}

// Append adds all of b to a.
func Append(a *model.Objects, b model.Objects) {
	a.Services = append(a.Services, b.Services...)
	a.EndpointSlices = append(a.EndpointSlices, b.EndpointSlices...)
	a.Endpoints = append(a.Endpoints, b.Endpoints...)
	a.Nodes = append(a.Nodes, b.Nodes...)
	a.Pods = append(a.Pods, b.Pods...)
	a.Namespaces = append(a.Namespaces, b.Namespaces...)
	a.Ingresses = append(a.Ingresses, b.Ingresses...)
	a.IngressClasses = append(a.IngressClasses, b.IngressClasses...)
	a.Secrets = append(a.Secrets, b.Secrets...)
	a.ConfigMaps = append(a.ConfigMaps, b.ConfigMaps...)
	a.Pools = append(a.Pools, b.Pools...)
	a.L2 = append(a.L2, b.L2...)
	a.ServiceCIDRs = append(a.ServiceCIDRs, b.ServiceCIDRs...)
}

// Unique keeps one object per kind and name, the first, and reports the others: two
// files may hold the same object, an API server cannot.
func Unique(o model.Objects) (model.Objects, []model.Problem) {
	var problems []model.Problem
	o.Services = unique("Service", o.Services, &problems)
	o.EndpointSlices = unique("EndpointSlice", o.EndpointSlices, &problems)
	o.Endpoints = unique("Endpoints", o.Endpoints, &problems)
	o.Nodes = unique("Node", o.Nodes, &problems)
	o.Pods = unique("Pod", o.Pods, &problems)
	o.Namespaces = unique("Namespace", o.Namespaces, &problems)
	o.Ingresses = unique("Ingress", o.Ingresses, &problems)
	o.IngressClasses = unique("IngressClass", o.IngressClasses, &problems)
	o.Secrets = unique("Secret", o.Secrets, &problems)
	o.ConfigMaps = unique("ConfigMap", o.ConfigMaps, &problems)
	o.ServiceCIDRs = unique("ServiceCIDR", o.ServiceCIDRs, &problems)
	return o, problems
}

func unique[P object](kind string, list []P, problems *[]model.Problem) []P {
	seen := make(map[model.Name]bool, len(list))
	var out []P
	for _, o := range list {
		n := model.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
		if seen[n] {
			*problems = append(*problems, model.Problem{Object: model.Ref{Kind: kind, Name: n}, Field: "metadata.name",
				Reason: "DuplicateObject", Message: "is written more than once; the first one, by file name, is used: remove the other"})
			continue
		}
		seen[n] = true
		out = append(out, o)
	}
	return out
}
