package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Text prints the table, one line per certificate and route, hosts in order of name
// with "any" last, routes in the order they are tried: what `compile --part ingress`
// shows. Every line stands for itself, so that two tables compare line by line.
func (t *Table) Text() string {
	var b strings.Builder
	names := make(map[string]bool, len(t.hosts))
	for n := range t.hosts {
		names[n] = true
	}
	for n := range t.tlsHosts {
		names[n] = true
	}
	byName := func(a, b string) int { return cmp.Or(boolCompare(a == "", b == ""), cmp.Compare(a, b)) }
	for _, n := range slices.SortedFunc(maps.Keys(names), byName) {
		if e := t.tlsHosts[n]; e != nil {
			fmt.Fprintf(&b, "%s tls %s\n", n, e)
		}
		h := t.hosts[n]
		if h == nil {
			continue
		}
		for _, r := range h.routes {
			t.line(&b, r)
		}
		if h.fallback != nil {
			t.line(&b, h.fallback)
		}
	}
	if t.catchAll != nil {
		t.line(&b, t.catchAll)
	}
	return b.String()
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (e *hostTLS) String() string {
	switch {
	case e.cert == nil:
		return "default certificate"
	case e.cert.TLS == nil:
		return "default certificate, as " + e.secret.String() + " is unusable"
	}
	return e.secret.String()
}

func (t *Table) line(b *strings.Builder, r *Route) {
	fmt.Fprintf(b, "%s -> %s", r.title(), r.Backend)
	if r.Refused != "" {
		b.WriteString(" refused 503")
	}
	if r.Settings.ForceSSLRedirect || r.Settings.SSLRedirect && t.hasTLS(r.Host) {
		b.WriteString(" redirect https")
	}
	if a := r.Settings.Affinity; a != nil {
		b.WriteString(" affinity " + a.Name)
	}
	if r.Ingress.Name != "" {
		fmt.Fprintf(b, " (%s)", r.Ingress)
	}
	b.WriteByte('\n')
}

// hasTLS is for a rule's host, which may be a wildcard itself.
func (t *Table) hasTLS(host string) bool {
	if t.tlsHosts[host] != nil {
		return true
	}
	_, e := t.tlsFor(host)
	return e != nil
}

// String gives the Service port and what stands behind it.
func (b *Backend) String() string {
	switch {
	case b.Missing != "":
		return b.Target.String() + " missing"
	case b.ExternalName != "":
		return fmt.Sprintf("%s external %s:%d", b.Target, b.ExternalName, b.ExternalPort)
	case len(b.Endpoints) == 0:
		return b.Target.String() + " no endpoints"
	}
	addrs := make([]string, len(b.Endpoints))
	for i, e := range b.Endpoints {
		addrs[i] = e.Addr.String()
	}
	return b.Target.String() + " " + strings.Join(addrs, ",")
}
