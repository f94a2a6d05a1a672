package dns

import (
	"fmt"
	"strings"

	"fairway/model"
)

// missing says why canonical name, in a zone served here, has no record of the type.
func (z *Zone) missing(name string, t Type) string {
	soa := z.zoneOf(name)
	if soa == nil {
		return "not in a zone served here"
	}
	if f := z.find(name, soa); f.exists {
		return z.hasOthers(f, t)
	}
	if soa.Name != z.cfg.Domain {
		return "no Service and no ready endpoint has this address"
	}
	rest, kind := cutLast(strings.TrimSuffix(strings.TrimSuffix(name, z.cfg.Domain), "."))
	rest, namespace := cutLast(rest)
	switch {
	case kind == "pod" && z.cfg.Pods == PodsDisabled:
		return "names of Pods are disabled"
	case kind != "svc" && kind != "pod":
		return fmt.Sprintf("names end in svc.%s or pod.%s", trimDot(z.cfg.Domain), trimDot(z.cfg.Domain))
	case !z.hasNamespace(namespace):
		return fmt.Sprintf("no namespace %s", namespace)
	case kind == "pod":
		return z.missingPod(rest, namespace)
	}
	rel, svc := cutLast(rest)
	p, ok := z.services.get(model.Name{Namespace: namespace, Name: svc})
	if !ok {
		return fmt.Sprintf("namespace %s has no Service %s", namespace, svc)
	}
	return p.missing(rel)
}

// hasOthers explains an empty answer for a name that exists.
func (z *Zone) hasOthers(f found, t Type) string {
	var have []string
	seen := map[Type]bool{}
	for _, r := range f.records {
		if !seen[r.Type] {
			seen[r.Type] = true
			have = append(have, r.Type.String())
		}
	}
	if len(have) == 0 {
		return "the name exists only as part of longer ones"
	}
	return fmt.Sprintf("the name has no %s, only %s", t, strings.Join(have, ", "))
}

func (z *Zone) missingPod(label, namespace string) string {
	a, ok := podAddress(label)
	if !ok {
		return fmt.Sprintf("%q is not an address written with dashes", label)
	}
	return fmt.Sprintf("no Pod of namespace %s has address %s", namespace, a)
}

// missing says why the Service has no name rel below its own.
func (p *part) missing(rel string) string {
	ref := p.svc.Ref().String()
	switch {
	case p.svc.Type == model.ExternalName && p.svc.ExternalName == "":
		return ref + " has an externalName that is not a DNS name"
	case p.svc.Type == model.ExternalName && rel == "":
		return ref + " points at itself"
	case p.svc.Type == model.ExternalName:
		return ref + " is of type ExternalName, which has no names below its own"
	case p.svc.Headless && !p.anyReady():
		return p.noneReady()
	case !p.svc.Headless && !p.svc.HasVIP():
		return ref + " has no cluster address yet"
	case !p.svc.Headless && !p.served():
		return ref + " has no ready endpoint, and such Services are left out"
	}
	if strings.Contains(rel, "._") {
		return p.missingPort(rel)
	}
	return p.missingEndpoint(rel)
}

func (p *part) anyReady() bool {
	for range p.ready() {
		return true
	}
	return false
}

func (p *part) noneReady() string {
	ref, n := p.svc.Ref().String(), len(p.svc.Endpoints)
	if n == 0 {
		return ref + " is headless and has no endpoints"
	}
	return fmt.Sprintf("%s is headless and none of its %d endpoints is ready (publishNotReadyAddresses would list them)", ref, n)
}

func (p *part) missingPort(rel string) string {
	port, proto, _ := strings.Cut(rel, "._")
	var named []string
	unnamed := false
	for _, q := range p.svc.Ports {
		if q.Name == "" {
			unnamed = true
			continue
		}
		named = append(named, q.Name+"/"+string(q.Protocol))
	}
	msg := fmt.Sprintf("%s has no %s port named %q", p.svc.Ref(), proto, strings.TrimPrefix(port, "_"))
	if len(named) > 0 {
		msg += "; it has " + strings.Join(named, ", ")
	}
	if unnamed {
		msg += "; a port without a name has no SRV record of its own"
	}
	return msg
}

func (p *part) missingEndpoint(rel string) string {
	for _, e := range p.svc.Endpoints {
		if p.endpointName(e) == rel {
			return fmt.Sprintf("endpoint %s of %s is not ready", e.Addr, p.svc.Ref())
		}
	}
	return fmt.Sprintf("%s has no endpoint named %q; a Pod gets this name by spec.hostname %s with spec.subdomain %s", p.svc.Ref(), rel, rel, p.svc.Name.Name)
}
