package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"fairway/model"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metallbVersion is the API version of MetalLB's objects that are read, unchanged.
const metallbVersion = "metallb.io/v1beta1"

// metallbHead is what both kinds have. The fields follow MetalLB's API reference; the
// structs hold what is used here, other fields are told as ignored or passed over.
type metallbHead struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		UID       string            `json:"uid"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
}

type ipAddressPool struct {
	metallbHead
	Spec struct {
		Addresses         []string `json:"addresses"`
		AutoAssign        *bool    `json:"autoAssign"`
		AvoidBuggyIPs     bool     `json:"avoidBuggyIPs"`
		ServiceAllocation *struct {
			Priority           int                    `json:"priority"`
			Namespaces         []string               `json:"namespaces"`
			NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors"`
			ServiceSelectors   []metav1.LabelSelector `json:"serviceSelectors"`
		} `json:"serviceAllocation"`
	} `json:"spec"`
}

type l2Advertisement struct {
	metallbHead
	Spec struct {
		IPAddressPools         []string               `json:"ipAddressPools"`
		IPAddressPoolSelectors []metav1.LabelSelector `json:"ipAddressPoolSelectors"`
		NodeSelectors          []metav1.LabelSelector `json:"nodeSelectors"`
		ServiceSelectors       []metav1.LabelSelector `json:"serviceSelectors"`
		Interfaces             []string               `json:"interfaces"`
	} `json:"spec"`
}

// ReadPool reads one IPAddressPool (metallb.io/v1beta1) from its JSON. Ranges that
// cannot be read become Problems; the others are used. The pool is nil when raw is no
// such object at all.
func ReadPool(raw []byte) (*model.Pool, []model.Problem) {
	var in ipAddressPool
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, []model.Problem{unreadable("IPAddressPool", raw, err)}
	}
	p := &model.Pool{
		Name: in.name(), UID: in.Metadata.UID, Labels: in.Metadata.Labels,
		AutoAssign: in.Spec.AutoAssign == nil || *in.Spec.AutoAssign, AvoidBuggyIPs: in.Spec.AvoidBuggyIPs,
	}
	r := reader{ref: p.Ref()}
	for i, text := range in.Spec.Addresses {
		rng, err := ParseRange(text)
		if err != nil {
			r.problem(fmt.Sprintf("spec.addresses[%d]", i), "InvalidRange", err.Error()+"; it is left out")
			continue
		}
		p.Ranges = append(p.Ranges, rng)
	}
	if len(in.Spec.Addresses) == 0 {
		r.problem("spec.addresses", "EmptyPool", "the pool has no addresses; write CIDRs or FROM-TO ranges")
	}
	if a := in.Spec.ServiceAllocation; a != nil {
		p.Priority, p.Namespaces = a.Priority, a.Namespaces
		p.NamespaceSelectors = r.selectors("spec.serviceAllocation.namespaceSelectors", a.NamespaceSelectors)
		p.ServiceSelectors = r.selectors("spec.serviceAllocation.serviceSelectors", a.ServiceSelectors)
		p.Restricted = len(a.Namespaces)+len(a.NamespaceSelectors)+len(a.ServiceSelectors) > 0
	}
	return p, r.problems
}

// ReadL2 reads one L2Advertisement (metallb.io/v1beta1) from its JSON.
func ReadL2(raw []byte) (*model.L2Advertisement, []model.Problem) {
	var in l2Advertisement
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, []model.Problem{unreadable("L2Advertisement", raw, err)}
	}
	ad := &model.L2Advertisement{Name: in.name(), UID: in.Metadata.UID, Pools: in.Spec.IPAddressPools, Interfaces: in.Spec.Interfaces}
	r := reader{ref: ad.Ref()}
	ad.PoolSelectors = r.selectors("spec.ipAddressPoolSelectors", in.Spec.IPAddressPoolSelectors)
	ad.NodeSelectors = r.selectors("spec.nodeSelectors", in.Spec.NodeSelectors)
	ad.ServiceSelectors = r.selectors("spec.serviceSelectors", in.Spec.ServiceSelectors)
	return ad, r.problems
}

func (h metallbHead) name() model.Name {
	ns := h.Metadata.Namespace
	if ns == "" {
		ns = "default"
	}
	return model.Name{Namespace: ns, Name: h.Metadata.Name}
}

func unreadable(kind string, raw []byte, err error) model.Problem {
	var h metallbHead
	_ = json.Unmarshal(raw, &h) // the name may be readable though the rest is not
	return model.Problem{
		Object: model.Ref{Kind: kind, Name: h.name(), UID: h.Metadata.UID},
		Field:  "spec", Reason: "UnreadableObject", Message: "left out: " + strings.TrimPrefix(err.Error(), "json: "),
	}
}

type reader struct {
	ref      model.Ref
	problems []model.Problem
}

func (r *reader) problem(field, reason, message string) {
	r.problems = append(r.problems, model.Problem{Object: r.ref, Field: field, Reason: reason, Message: message})
}

// selectors keeps the place of a selector that cannot be read by one that matches
// nothing: a broken restriction must not open the pool to everybody.
func (r *reader) selectors(field string, in []metav1.LabelSelector) []model.Selector {
	var out []model.Selector
	for i, s := range in {
		sel := model.Selector{MatchLabels: s.MatchLabels}
		for _, e := range s.MatchExpressions {
			switch e.Operator {
			case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			default:
				r.problem(fmt.Sprintf("%s[%d].matchExpressions", field, i), "InvalidSelector",
					fmt.Sprintf("operator %q is none of In, NotIn, Exists, DoesNotExist; this selector matches nothing", e.Operator))
			}
			sel.Expressions = append(sel.Expressions, model.Expression{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
		}
		out = append(out, sel)
	}
	return out
}

// ParseRange reads a CIDR (192.0.2.0/28, fd00::/120), a range (192.0.2.10-192.0.2.20)
// or a single address. A CIDR's host bits count for nothing, as in MetalLB.
func ParseRange(text string) (model.Range, error) {
	s := strings.TrimSpace(text)
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return model.Range{}, fmt.Errorf("%q is not a CIDR", text)
		}
		if p.Addr().Is4In6() {
			return model.Range{}, fmt.Errorf("%q is an IPv4 CIDR in IPv6 form; write it as IPv4", text)
		}
		return usableRange(text, model.Range{From: p.Masked().Addr(), To: lastOf(p)})
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, err1 := netip.ParseAddr(strings.TrimSpace(from))
	b, err2 := netip.ParseAddr(strings.TrimSpace(to))
	a, b = a.Unmap(), b.Unmap()
	switch {
	case err1 != nil || err2 != nil || a.Zone() != "" || b.Zone() != "":
		return model.Range{}, fmt.Errorf("%q is no CIDR, FROM-TO range or address", text)
	case a.BitLen() != b.BitLen():
		return model.Range{}, fmt.Errorf("%q mixes IPv4 and IPv6", text)
	case b.Less(a):
		return model.Range{}, fmt.Errorf("%q ends before it begins", text)
	}
	return usableRange(text, model.Range{From: a, To: b})
}

// usableRange refuses ranges that begin or end where no Service can be reached.
func usableRange(text string, r model.Range) (model.Range, error) {
	for _, a := range []netip.Addr{r.From, r.To} {
		if a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
			return model.Range{}, fmt.Errorf("%q holds loopback, multicast or unspecified addresses", text)
		}
	}
	return r, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
