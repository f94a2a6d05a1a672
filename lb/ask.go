package lb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
)

// ask is what one Service asks of the pools and what it already has.
type ask struct {
	svc *model.Service
	// families in the Service's order; true is IPv6.
	families []bool
	// all is RequireDualStack: one family alone is no answer.
	all bool
	// request, held and promised hold at most one address per family.
	request  byFamily
	held     byFamily
	promised byFamily

	requestField string
	pool         string // annotation address-pool
	poolField    string
	share        string // annotation allow-shared-ip
	ports        []portKey
	// backend is empty for externalTrafficPolicy Cluster, else the selector: sharers
	// with policy Local must select the same Pods, as one node must serve them all.
	backend string
	broken  *model.Problem
}

type byFamily map[bool]netip.Addr

type portKey struct {
	proto string
	port  uint16
}

func (p portKey) String() string { return fmt.Sprintf("%s/%d", p.proto, p.port) }

// readAsk reads fields and annotations. A contradiction is kept in broken: such a
// Service gets nothing new, but keeps what it holds.
func readAsk(s *model.Service, promised Promise) *ask {
	a := &ask{svc: s, all: s.FamilyPolicy == corev1.IPFamilyPolicyRequireDualStack}
	a.pool, a.poolField = annotation(s, "address-pool")
	a.share, _ = annotation(s, "allow-shared-ip")
	for _, p := range s.Ports {
		a.ports = append(a.ports, portKey{string(p.Protocol), p.Port})
	}
	if s.ExternalLocal {
		a.backend = "Local " + selectorText(s.Selector)
	}
	requested := a.readRequest()
	a.readFamilies(requested)
	a.placeRequest(requested)
	a.held = a.perFamily(heldAddrs(s))
	if promised.UID == s.UID {
		a.promised = a.perFamily(promised.Addrs)
	}
	return a
}

// annotation reads MetalLB's annotation under its present and its former prefix and
// returns the value and the field's name.
func annotation(s *model.Service, name string) (value, field string) {
	for _, prefix := range []string{"metallb.io/", "metallb.universe.tf/"} {
		if v := strings.TrimSpace(s.Annotations[prefix+name]); v != "" {
			return v, "metadata.annotations[" + prefix + name + "]"
		}
	}
	return "", ""
}

func selectorText(sel map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(sel)) {
		fmt.Fprintf(&b, "%s=%s,", k, sel[k])
	}
	return b.String()
}

func (a *ask) refuse(field, reason, format string, args ...any) {
	if a.broken == nil {
		p := a.svc.Problem(field, reason, fmt.Sprintf(format, args...))
		a.broken = &p
	}
}

func (a *ask) readRequest() []netip.Addr {
	text, field := annotation(a.svc, "loadBalancerIPs")
	if spec := strings.TrimSpace(a.svc.LBIP); spec != "" {
		if text != "" && text != spec {
			a.refuse("spec.loadBalancerIP", "InvalidRequest", "spec.loadBalancerIP %s and the annotation %s disagree; keep one of them", spec, text)
		}
		if text == "" {
			text, field = spec, "spec.loadBalancerIP"
		}
	}
	a.requestField = field
	var out []netip.Addr
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		ip, err := netip.ParseAddr(part)
		if err != nil || ip.Zone() != "" {
			a.refuse(field, "InvalidRequest", "%q is not an IP address", part)
			continue
		}
		out = append(out, ip.Unmap())
	}
	return out
}

// readFamilies follows spec.ipFamilies; files may leave it out, then the cluster
// addresses or the request decide, else IPv4.
func (a *ask) readFamilies(requested []netip.Addr) {
	add := func(v6 bool) {
		if !slices.Contains(a.families, v6) {
			a.families = append(a.families, v6)
		}
	}
	for _, f := range a.svc.Families {
		add(f == corev1.IPv6Protocol)
	}
	for _, ips := range [][]netip.Addr{a.svc.ClusterIPs, requested} {
		for i := 0; i < len(ips) && len(a.svc.Families) == 0; i++ {
			add(ips[i].Is6())
		}
		if len(a.families) > 0 {
			break
		}
	}
	if len(a.families) == 0 {
		add(false)
	}
	if a.svc.FamilyPolicy == corev1.IPFamilyPolicySingleStack {
		a.families = a.families[:1]
	}
}

func (a *ask) placeRequest(requested []netip.Addr) {
	a.request = byFamily{}
	for _, ip := range requested {
		if !slices.Contains(a.families, ip.Is6()) {
			a.refuse(a.requestField, "FamilyMismatch", "requested address %s is %s, but the Service's spec.ipFamilies are %s",
				ip, familyName(ip.Is6()), familyNames(a.families))
			continue
		}
		if old, dup := a.request[ip.Is6()]; dup && old != ip {
			a.refuse(a.requestField, "InvalidRequest", "%s and %s are both %s; a Service gets one address per family", old, ip, familyName(ip.Is6()))
			continue
		}
		a.request[ip.Is6()] = ip
	}
}

// perFamily keeps the first address of each family the Service has.
func (a *ask) perFamily(ips []netip.Addr) byFamily {
	out := byFamily{}
	for _, ip := range ips {
		if _, dup := out[ip.Is6()]; !dup && slices.Contains(a.families, ip.Is6()) {
			out[ip.Is6()] = ip
		}
	}
	return out
}

// list puts addresses in the order of the Service's families.
func (a *ask) list(m byFamily) []netip.Addr {
	var out []netip.Addr
	for _, f := range a.families {
		if ip, ok := m[f]; ok {
			out = append(out, ip)
		}
	}
	return out
}

// moving tells whether the held addresses contradict the request.
func (a *ask) moving(pool *model.Pool) bool {
	for f, ip := range a.request {
		if held, ok := a.held[f]; ok && held != ip {
			return true
		}
	}
	return a.pool != "" && len(a.held) > 0 && (pool == nil || pool.Name.Name != a.pool)
}

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

func familyNames(fs []bool) string {
	out := make([]string, len(fs))
	for i, f := range fs {
		out[i] = familyName(f)
	}
	return strings.Join(out, " and ")
}
