package ingress

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fairway/model"
)

// builder is one run of Build.
type builder struct {
	prev     *Table
	table    *Table
	snap     *model.Snapshot
	problems []model.Problem
}

// Build makes the Table of a Snapshot under cfg. Settings, endpoint lists and parsed
// certificates are taken over from prev (nil at first) while the objects they were
// made from are the same pointers. Problems come in the order of the Ingresses: by
// age, then name, which is also the order in which they win a host and path.
func Build(prev *Table, snap *model.Snapshot, cfg Config) (*Table, []model.Problem) {
	if prev == nil || !reflect.DeepEqual(prev.cfg, cfg) {
		prev = &Table{}
	}
	b := &builder{prev: prev, snap: snap, table: &Table{
		hosts: make(map[string]*host, len(prev.hosts)), tlsHosts: make(map[string]*hostTLS, len(prev.tlsHosts)), cfg: cfg,
		settings: make(map[*model.Ingress]*Settings, len(snap.Ingresses)),
		backends: make(map[backendKey]*Backend, len(prev.backends)),
		certs:    make(map[*model.Secret]*Certificate, len(prev.certs)),
		regexes:  make(map[string]compiled, len(prev.regexes)),
	}}
	b.selectOwned()
	b.defaultCertificate()
	for _, o := range b.table.owned {
		b.problems = append(b.problems, o.settings.problems...)
		b.rules(o)
		b.tlsListed(o)
	}
	for _, o := range b.table.owned {
		b.tlsImplied(o)
	}
	if b.table.catchAll == nil && cfg.DefaultBackend != nil {
		o := &owned{Ingress: &model.Ingress{}, why: "it is the controller's own", settings: &Settings{BodyLimit: -1}}
		b.table.catchAll = b.route(o, "", *cfg.DefaultBackend)
	}
	for _, h := range b.table.hosts {
		h.sort()
	}
	return b.table, b.problems
}

func (b *builder) problem(o *owned, field, reason, message string) {
	b.problems = append(b.problems, o.Problem(field, reason, message))
}

func (b *builder) selectOwned() {
	c := newClasses(b.snap, b.table.cfg)
	for _, i := range b.snap.Ingresses {
		ours, why, problem := c.choose(i)
		if problem != nil {
			b.problems = append(b.problems, *problem)
		}
		if !ours {
			b.table.foreign = append(b.table.foreign, &owned{Ingress: i, why: why})
			continue
		}
		s := b.prev.settings[i]
		if s == nil {
			s = readSettings(i, b.table.cfg)
		}
		b.table.settings[i] = s
		b.table.owned = append(b.table.owned, &owned{Ingress: i, why: why, settings: s})
	}
	// Stable: the Snapshot is in order of name.
	slices.SortStableFunc(b.table.owned, func(x, y *owned) int { return x.Created.Compare(y.Created) })
}

// ruleHost checks the host of a rule; empty is any.
func ruleHost(h string) (string, bool) {
	suffix, wild := strings.CutPrefix(h, "*.")
	n, ok := NormalHost(suffix)
	if !ok || strings.ContainsAny(h, ":[]") || wild && n == "" || n == "" && h != "" {
		return h, false
	}
	if wild {
		return "*." + n, true
	}
	return n, true
}

func (b *builder) host(name string) *host {
	h := b.table.hosts[name]
	if h == nil {
		h = &host{name: name}
		b.table.hosts[name] = h
	}
	return h
}

func (b *builder) rules(o *owned) {
	if o.settings.Canary {
		return
	}
	if len(o.Rules) == 0 && o.Default != nil {
		b.catchAll(o)
	}
	for n, rule := range o.Rules {
		name, ok := ruleHost(rule.Host)
		if !ok {
			b.problem(o, fmt.Sprintf("spec.rules[%d].host", n), "InvalidHost", fmt.Sprintf("%q is not a host name, nor *. and one; this rule is left out", rule.Host))
			continue
		}
		h := b.host(name)
		for k, p := range rule.Paths {
			b.path(o, h, fmt.Sprintf("spec.rules[%d].http.paths[%d]", n, k), p)
		}
		if o.Default != nil && h.fallback == nil {
			h.fallback = b.ingressDefault(o, name)
		}
	}
}

func (b *builder) catchAll(o *owned) {
	switch {
	case b.table.cfg.DisableCatchAll:
		b.problem(o, "spec.defaultBackend", "CatchAllDisabled", "it would answer for every host, which is switched off; add rules")
	case b.table.catchAll != nil:
		b.problem(o, "spec.defaultBackend", "DuplicateDefaultBackend", fmt.Sprintf("older Ingress %s already answers for every host", b.table.catchAll.Ingress))
	default:
		b.table.catchAll = b.ingressDefault(o, "")
	}
}

func (b *builder) ingressDefault(o *owned, host string) *Route {
	r := b.route(o, "spec.defaultBackend", o.target(o.Default))
	r.Host = host
	return r
}

func (o *owned) target(b *model.Backend) Target {
	return Target{Service: model.Name{Namespace: o.Name.Namespace, Name: b.Service}, PortName: b.PortName, PortNumber: b.PortNumber}
}

// route makes a route of kind Default; its caller fills in the path. field is empty
// when the missing Service is not the Ingress's to mend.
func (b *builder) route(o *owned, field string, t Target) *Route {
	r := &Route{Kind: Default, Ingress: o.Name, Settings: o.settings, Refused: o.settings.Refused, why: o.why}
	if t.Service.Name == "" { // a resource; model reported it
		r.Backend = &Backend{Name: "none", Target: t, Missing: "its backend is not a Service"}
		return r
	}
	r.Backend = b.backend(t, o.settings.Affinity != nil)
	if r.Backend.Missing != "" && field != "" {
		b.problem(o, field, "BackendNotFound", r.Backend.Missing+"; requests get 503 until it does")
	}
	return r
}

func (b *builder) backend(t Target, sticky bool) *Backend {
	k := backendKey{svc: b.snap.Service(t.Service), target: t, sticky: sticky}
	back := b.table.backends[k]
	if back == nil {
		if back = b.prev.backends[k]; back == nil {
			back = newBackend(k.svc, t, b.table.cfg)
			if sticky {
				back.makeSticky(b.table.cfg.CookieKey)
			}
		}
		b.table.backends[k] = back
	}
	return back
}

// path adds one path to its host, unless an older Ingress has it.
func (b *builder) path(o *owned, h *host, field string, p model.Path) {
	backend := p.Backend
	r := b.route(o, field+".backend", o.target(&backend))
	r.Host = h.name
	if problem := r.readPath(p, o.settings.Regex, b.regex); problem != "" {
		b.problem(o, field+".path", "InvalidPath", problem)
		if r.Kind == Default {
			return
		}
	}
	if old := h.add(r); old != nil {
		b.problem(o, field+".path", "DuplicatePath", fmt.Sprintf("host %q and path %s are already defined in Ingress %s, which stays in force",
			h.name, p.Path, old.Ingress))
	}
}

// readPath fills in the path; what it returns is a Problem, and Kind stays Default
// when the path must be left out.
func (r *Route) readPath(p model.Path, regex bool, compile compiler) string {
	if p.Type == model.ImplementationSpecific {
		return r.readSpecific(p.Path, regex, compile)
	}
	norm, err := ParsePath(p.Path, false)
	if err != nil {
		return err.Error() + "; this path is left out"
	}
	r.Path, r.Kind, r.rank = norm.Match, Kind(p.Type), len(norm.Match)
	if r.Kind == Prefix {
		r.rank = max(1, len(strings.TrimRight(r.Path, "/")))
	}
	return ""
}

// readSpecific reads an ImplementationSpecific path: a regular expression where the
// Ingress says so, a glob where it has * or ?, else a plain string prefix.
func (r *Route) readSpecific(path string, regex bool, compile compiler) string {
	if path == "" {
		path = "/"
	}
	meta := strings.IndexAny(path, `*?+()[]{}|^$\`)
	if regex && (meta >= 0 || strings.Contains(path, ".")) {
		return r.readRegex(path, meta, compile)
	}
	if i := strings.IndexAny(path, "*?"); i >= 0 {
		r.Path, r.Kind, r.rank = path, Glob, i
		return ""
	}
	norm, err := ParsePath(path, false)
	if err != nil {
		return err.Error() + "; this path is left out"
	}
	r.Path, r.Kind, r.rank = norm.Match, Plain, len(norm.Match)
	return ""
}
