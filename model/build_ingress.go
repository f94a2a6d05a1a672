package model

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

func buildIngresses(prev *Snapshot, in []*networkingv1.Ingress) []*Ingress {
	old := make(map[*networkingv1.Ingress]*Ingress, len(prev.Ingresses))
	for _, i := range prev.Ingresses {
		old[i.object] = i
	}
	out := make([]*Ingress, 0, len(in))
	for _, obj := range in {
		i := old[obj]
		if i == nil {
			i = buildIngress(obj)
		}
		out = append(out, i)
	}
	sortByName(out, func(i *Ingress) Name { return i.Name })
	return out
}

func buildIngress(obj *networkingv1.Ingress) *Ingress {
	i := &Ingress{
		Name: Name{obj.Namespace, obj.Name}, UID: string(obj.UID), Annotations: obj.Annotations,
		Created: obj.CreationTimestamp.Time, object: obj,
	}
	if c := obj.Spec.IngressClassName; c != nil {
		i.Class = *c
	}
	if b := obj.Spec.DefaultBackend; b != nil {
		if back, ok := i.backend("spec.defaultBackend", b); ok {
			i.Default = &back
		}
	}
	for n, r := range obj.Spec.Rules {
		i.readRule(n, &r)
	}
	for _, t := range obj.Spec.TLS {
		hosts := make([]string, len(t.Hosts))
		for k, h := range t.Hosts {
			hosts[k] = strings.ToLower(h)
		}
		i.TLS = append(i.TLS, TLS{Hosts: hosts, Secret: t.SecretName})
	}
	for _, l := range obj.Status.LoadBalancer.Ingress {
		if l.IP != "" {
			i.Addresses = append(i.Addresses, l.IP)
		}
		if l.Hostname != "" {
			i.Addresses = append(i.Addresses, l.Hostname)
		}
	}
	if i.Default == nil && len(obj.Spec.Rules) == 0 {
		i.issue("spec", "InvalidIngress", "has neither rules nor a defaultBackend; it serves nothing")
	}
	return i
}

func (i *Ingress) issue(field, reason, format string, args ...any) {
	i.issues = append(i.issues, i.Problem(field, reason, fmt.Sprintf(format, args...)))
}

func (i *Ingress) readRule(n int, r *networkingv1.IngressRule) {
	rule := Rule{Host: strings.ToLower(r.Host)}
	if r.HTTP == nil || len(r.HTTP.Paths) == 0 {
		rule.NoPaths = true
		i.Rules = append(i.Rules, rule)
		return
	}
	for k, p := range r.HTTP.Paths {
		field := fmt.Sprintf("spec.rules[%d].http.paths[%d]", n, k)
		typ := ImplementationSpecific
		if p.PathType != nil {
			typ = PathType(*p.PathType)
		}
		if typ != Exact && typ != Prefix && typ != ImplementationSpecific {
			i.issue(field+".pathType", "InvalidPath", "%q is not Exact, Prefix or ImplementationSpecific; this path is left out", typ)
			continue
		}
		if problem := badPath(p.Path, typ); problem != "" {
			i.issue(field+".path", "InvalidPath", "%q %s; this path is left out", p.Path, problem)
			continue
		}
		if b, ok := i.backend(field+".backend", &p.Backend); ok {
			rule.Paths = append(rule.Paths, Path{Path: p.Path, Type: typ, Backend: b})
		}
	}
	i.Rules = append(i.Rules, rule)
}

// badPath repeats the API server's rules (networking/v1 validation), for files.
func badPath(path string, typ PathType) string {
	if typ == ImplementationSpecific {
		if path != "" && path[0] != '/' {
			return "must start with /"
		}
		return ""
	}
	if path == "" || path[0] != '/' {
		return "must start with /"
	}
	for _, bad := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, bad) {
			return "must not contain " + bad
		}
	}
	for _, bad := range []string{"/..", "/."} {
		if strings.HasSuffix(path, bad) {
			return "must not end with " + bad
		}
	}
	return ""
}

func (i *Ingress) backend(field string, b *networkingv1.IngressBackend) (Backend, bool) {
	if b.Service != nil {
		if n := b.Service.Port.Number; n < 0 || n > 65535 {
			i.issue(field+".service.port.number", "InvalidBackend", "%d is not a port number (1 to 65535); nothing can answer here", n)
			return Backend{Service: b.Service.Name}, true
		}
		return Backend{Service: b.Service.Name, PortName: b.Service.Port.Name, PortNumber: uint16(b.Service.Port.Number)}, true
	}
	if b.Resource != nil {
		i.issue(field+".resource", "UnsupportedBackend", "backend %s/%s is not a Service; only Services are served", b.Resource.Kind, b.Resource.Name)
		return Backend{Resource: b.Resource.Kind + "/" + b.Resource.Name}, true
	}
	i.issue(field, "InvalidBackend", "names neither a service nor a resource; this path is left out")
	return Backend{}, false
}
