package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Build turns objects into a Snapshot. Values whose source objects are the same
// pointers as in prev (nil at first) are taken over as they are. Bad fields become
// Problems; everything else of the object keeps working.
func Build(prev *Snapshot, in Objects) (*Snapshot, []Problem) {
	if prev == nil {
		prev = &Snapshot{}
	}
	s := &Snapshot{Pools: in.Pools, L2: in.L2, NamespaceLabels: map[string]map[string]string{}}
	s.from = sources{in.Services, in.EndpointSlices, in.Endpoints}
	s.Services = buildServices(prev, s.from)
	s.Nodes = buildNodes(prev, in.Nodes)
	s.Pods = buildPods(prev, in.Pods)
	s.Ingresses = buildIngresses(prev, in.Ingresses)
	s.Classes = buildClasses(prev, in.IngressClasses)
	s.Secrets = buildSecrets(prev, in.Secrets)
	s.ConfigMaps = buildConfigMaps(prev, in.ConfigMaps)
	for _, ns := range in.Namespaces {
		s.Namespaces = append(s.Namespaces, ns.Name)
		if len(ns.Labels) > 0 {
			s.NamespaceLabels[ns.Name] = ns.Labels
		}
	}
	slices.Sort(s.Namespaces)
	var problems []Problem
	s.ServiceCIDRs, problems = serviceCIDRs(in.ServiceCIDRs)
	for _, svc := range s.Services {
		problems = append(problems, svc.issues...)
	}
	for _, ing := range s.Ingresses {
		problems = append(problems, ing.issues...)
	}
	return s, problems
}

// serviceCIDRs are the ranges of the objects, each once. One that is being deleted counts
// until it is gone: its addresses are still in use.
func serviceCIDRs(in []*networkingv1.ServiceCIDR) ([]netip.Prefix, []Problem) {
	var out []netip.Prefix
	var problems []Problem
	for _, obj := range in {
		for i, text := range obj.Spec.CIDRs {
			c, err := parsePrefix(text)
			if err != nil {
				problems = append(problems, Problem{Object: Ref{Kind: "ServiceCIDR", Name: Name{Name: obj.Name}, UID: string(obj.UID)},
					Field: fmt.Sprintf("spec.cidrs[%d]", i), Reason: "InvalidCIDR", Message: fmt.Sprintf("%q is not a range such as 10.96.0.0/12; it is left out", text)})
				continue
			}
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return slices.Compact(out), problems
}

// sortSlices orders slices by name, so that the same set always compares equal.
func sortSlices(sl []*discoveryv1.EndpointSlice) {
	if len(sl) > 1 {
		slices.SortFunc(sl, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	}
}

func sortByName[T any](s []T, name func(T) Name) {
	cmp := func(a, b T) int { return name(a).Compare(name(b)) }
	if !slices.IsSortedFunc(s, cmp) {
		slices.SortFunc(s, cmp)
	}
}

func buildNodes(prev *Snapshot, in []*corev1.Node) []*Node {
	old := make(map[*corev1.Node]*Node, len(prev.Nodes))
	for _, n := range prev.Nodes {
		old[n.object] = n
	}
	out := make([]*Node, 0, len(in))
	for _, obj := range in {
		n := old[obj]
		if n == nil {
			n = buildNode(obj)
		}
		out = append(out, n)
	}
	sortByName(out, func(n *Node) Name { return Name{Name: n.Name} })
	return out
}

func buildNode(obj *corev1.Node) *Node {
	n := &Node{Name: obj.Name, UID: string(obj.UID), Labels: obj.Labels, Zone: obj.Labels[corev1.LabelTopologyZone], object: obj}
	for _, a := range obj.Status.Addresses {
		ip, err := parseAddr(a.Address)
		if err != nil {
			continue // a hostname
		}
		switch a.Type {
		case corev1.NodeInternalIP:
			n.InternalIPs = append(n.InternalIPs, ip)
		case corev1.NodeExternalIP:
			n.ExternalIPs = append(n.ExternalIPs, ip)
		}
	}
	if p := obj.Status.DaemonEndpoints.KubeletEndpoint.Port; p > 0 && p < 65536 {
		n.KubeletPort = uint16(p)
	}
	cidrs := obj.Spec.PodCIDRs
	if len(cidrs) == 0 && obj.Spec.PodCIDR != "" {
		cidrs = []string{obj.Spec.PodCIDR}
	}
	for _, c := range cidrs {
		if p, err := parsePrefix(c); err == nil {
			n.PodCIDRs = append(n.PodCIDRs, p)
		}
	}
	for _, c := range obj.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready = c.Status == corev1.ConditionTrue
		}
	}
	n.Leaving = obj.DeletionTimestamp != nil || slices.ContainsFunc(obj.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler"
	})
	return n
}

func buildPods(prev *Snapshot, in []*corev1.Pod) []*Pod {
	old := make(map[*corev1.Pod]*Pod, len(prev.Pods))
	for _, p := range prev.Pods {
		old[p.object] = p
	}
	out := make([]*Pod, 0, len(in))
	for _, obj := range in {
		p := old[obj]
		if p == nil {
			p = buildPod(obj)
		}
		out = append(out, p)
	}
	sortByName(out, func(p *Pod) Name { return p.Name })
	return out
}

func buildPod(obj *corev1.Pod) *Pod {
	p := &Pod{
		Name: Name{obj.Namespace, obj.Name}, Node: obj.Spec.NodeName, Labels: obj.Labels,
		HostNetwork: obj.Spec.HostNetwork, DNSPolicy: string(obj.Spec.DNSPolicy), object: obj,
		Gone: obj.DeletionTimestamp != nil || obj.Status.Phase == corev1.PodSucceeded || obj.Status.Phase == corev1.PodFailed,
	}
	if c := obj.Spec.DNSConfig; c != nil {
		p.takeDNS(c)
	}
	ips := obj.Status.PodIPs
	if len(ips) == 0 && obj.Status.PodIP != "" {
		ips = []corev1.PodIP{{IP: obj.Status.PodIP}}
	}
	for _, ip := range ips {
		if a, err := parseAddr(ip.IP); err == nil {
			p.IPs = append(p.IPs, a)
		}
	}
	return p
}

func (p *Pod) takeDNS(c *corev1.PodDNSConfig) {
	p.Searches = c.Searches
	for _, s := range c.Nameservers {
		if a, err := parseAddr(s); err == nil {
			p.Nameservers = append(p.Nameservers, a)
		}
	}
	for _, o := range c.Options {
		if o.Name == "ndots" && o.Value != nil {
			p.NDots, _ = strconv.Atoi(*o.Value)
		}
	}
}

func buildSecrets(prev *Snapshot, in []*corev1.Secret) map[Name]*Secret {
	out := make(map[Name]*Secret, len(in))
	for _, obj := range in {
		n := Name{obj.Namespace, obj.Name}
		if old := prev.Secrets[n]; old != nil && old.object == obj {
			out[n] = old
			continue
		}
		data := make(map[string][]byte, len(obj.Data)+len(obj.StringData))
		for k, v := range obj.Data {
			data[k] = v
		}
		for k, v := range obj.StringData { // only in files: the API server folds it
			data[k] = []byte(v)
		}
		out[n] = &Secret{Name: n, Type: string(obj.Type), Data: data, object: obj}
	}
	return out
}

func buildConfigMaps(prev *Snapshot, in []*corev1.ConfigMap) map[Name]*ConfigMap {
	out := make(map[Name]*ConfigMap, len(in))
	for _, obj := range in {
		n := Name{obj.Namespace, obj.Name}
		if old := prev.ConfigMaps[n]; old != nil && old.object == obj {
			out[n] = old
			continue
		}
		out[n] = &ConfigMap{Name: n, Data: obj.Data, object: obj}
	}
	return out
}

func buildClasses(prev *Snapshot, in []*networkingv1.IngressClass) []*IngressClass {
	old := make(map[*networkingv1.IngressClass]*IngressClass, len(prev.Classes))
	for _, c := range prev.Classes {
		old[c.object] = c
	}
	out := make([]*IngressClass, 0, len(in))
	for _, obj := range in {
		c := old[obj]
		if c == nil {
			c = &IngressClass{
				Name: obj.Name, Controller: obj.Spec.Controller, object: obj,
				Created: obj.CreationTimestamp.Time,
				Default: obj.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true",
			}
		}
		out = append(out, c)
	}
	sortByName(out, func(c *IngressClass) Name { return Name{Name: c.Name} })
	return out
}

func fieldIndex(field string, i int, sub string) string {
	if sub == "" {
		return fmt.Sprintf("%s[%d]", field, i)
	}
	return fmt.Sprintf("%s[%d].%s", field, i, sub)
}
