package ingress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/packet"
)

// Outcome is what a request meets: an HTTP status when it is answered here, else the
// endpoints it may reach.
type Outcome struct {
	Route *Route
	// Status is 308, 400, 404 or 503; 0 when the request is forwarded.
	Status int
	// Location is set with 308.
	Location  string
	Endpoints []netip.AddrPort
	Steps     []packet.Step
}

// Trace follows a URL (http or https) through the table with the reason for every
// choice: certificate, host, path, redirect, refusal, endpoint candidates.
func (t *Table) Trace(url string) (Outcome, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme != "http" && scheme != "https" {
		return Outcome{}, fmt.Errorf("%s: want http:// or https:// and a host", url)
	}
	rest, _, _ = strings.Cut(rest, "#")
	hostField, path := rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		hostField, path = rest[:i], rest[i:]
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if path == "" {
		path = "/"
	}
	host, ok := NormalHost(hostField)
	if !ok || host == "" {
		return Outcome{}, fmt.Errorf("%s: %q is not a host", url, hostField)
	}
	var o Outcome
	if scheme == "https" {
		o.Steps = append(o.Steps, t.traceTLS(host))
	}
	r, steps := t.Match(hostField, path)
	o.Route, o.Steps = r, append(o.Steps, steps...)
	norm, err := ParsePath(path, t.cfg.KeepSlashes)
	if hasQuery {
		query = "?" + query
	}
	switch {
	case r != nil && scheme == "http" && t.RedirectsToHTTPS(r, host, norm.Text):
		o.Status, o.Location = 308, "https://"+host+norm.Text+query
		o.say("redirect", "308 to %s: %s", o.Location, t.whyRedirect(r, host))
	case r != nil:
		o.backend(r)
	case err != nil || steps[len(steps)-1].Where == "request":
		o.Status = 400
	default:
		o.Status = 404
	}
	return o, nil
}

func (o *Outcome) say(where, format string, args ...any) {
	o.Steps = append(o.Steps, packet.Step{Where: where, What: fmt.Sprintf(format, args...)})
}

func (t *Table) traceTLS(host string) packet.Step {
	name, e := t.tlsFor(host)
	def := "the built-in default certificate"
	if t.defCert != nil {
		def = "the default certificate " + t.defCert.Secret.String()
	}
	s := packet.Step{Where: "tls " + host}
	switch {
	case e == nil:
		s.What = def + ": no Ingress has TLS for this host"
	case e.cert == nil:
		s.What = fmt.Sprintf("%s: Ingress %s names no Secret for %s", def, e.ingress, name)
	case e.cert.TLS == nil:
		s.What = def + ": " + e.cert.message
	default:
		s.What = fmt.Sprintf("certificate of Secret %s, for %s by Ingress %s", e.secret, name, e.ingress)
	}
	return s
}

func (t *Table) whyRedirect(r *Route, host string) string {
	if r.Settings.ForceSSLRedirect {
		return "an annotation forces it"
	}
	name, e := t.tlsFor(host)
	return fmt.Sprintf("%s has TLS by Ingress %s", name, e.ingress)
}

func (o *Outcome) backend(r *Route) {
	b := r.Backend
	where := "backend " + b.Target.String()
	switch {
	case r.Refused != "":
		o.Status = 503
		o.say(where, "refused with 503: %s", r.Refused)
	case b.Missing != "":
		o.Status = 503
		o.say(where, "503: %s", b.Missing)
	case b.ExternalName != "":
		o.say(where, "ExternalName: %s is resolved when the request comes, port %d", b.ExternalName, b.ExternalPort)
	case len(b.Endpoints) == 0:
		o.Status = 503
		o.say(where, "503: no ready endpoint")
	default:
		o.candidates(where, r)
	}
}

func (o *Outcome) candidates(where string, r *Route) {
	for _, e := range r.Backend.Endpoints {
		o.Endpoints = append(o.Endpoints, e.Addr)
	}
	how := "in turn"
	if a := r.Settings.Affinity; a != nil {
		how = "by the cookie " + a.Name + ", else in turn"
	}
	o.say(where, "straight to a ready endpoint of %d, %s", len(o.Endpoints), how)
	for _, e := range r.Backend.Endpoints {
		what := "candidate"
		if e.Pod.Name != "" {
			what = "candidate, Pod " + e.Pod.String()
		}
		o.say("endpoint "+e.Addr.String(), "%s", what)
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
}
