package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fairway/model"
	"fairway/packet"
)

// add puts a route in its place and returns the one that has it already, if any.
func (h *host) add(r *Route) (old *Route) {
	switch r.Kind {
	case Exact:
		if old = h.exact[r.Path]; old == nil {
			put(&h.exact, r.Path, r)
		}
	case Prefix:
		key := strings.TrimRight(r.Path, "/")
		if old = h.prefix[key]; old == nil {
			put(&h.prefix, key, r)
		}
	default:
		key := patternKey{r.Kind, r.Path}
		if old = h.pattern[key]; old != nil {
			return old
		}
		if h.pattern == nil {
			h.pattern = make(map[patternKey]*Route, 2)
		}
		h.pattern[key] = r
		h.patterns = append(h.patterns, r)
	}
	if old == nil {
		h.routes = append(h.routes, r)
	}
	return old
}

func put(m *map[string]*Route, key string, r *Route) {
	if *m == nil {
		*m = make(map[string]*Route, 2)
	}
	(*m)[key] = r
}

func (k Kind) order() int { return slices.Index([]Kind{Exact, Prefix, Plain, Glob, Regex, Default}, k) }

// precedence: the longest literal part first; among equals Exact, then Prefix, then
// the rest; among those the longer pattern. The sort is stable, so older comes first.
func precedence(a, b *Route) int {
	return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.Kind.order(), b.Kind.order()), cmp.Compare(len(b.Path), len(a.Path)))
}

func (h *host) sort() {
	if len(h.routes) > 1 {
		slices.SortStableFunc(h.routes, precedence)
		slices.SortStableFunc(h.patterns, precedence)
	}
}

// matches is the comparison of one route with one normalised path.
func (r *Route) matches(path string) bool {
	switch r.Kind {
	case Exact:
		return path == r.Path
	case Prefix:
		rest, ok := strings.CutPrefix(path, strings.TrimRight(r.Path, "/"))
		return ok && (rest == "" || rest[0] == '/')
	case Plain:
		return strings.HasPrefix(path, r.Path)
	case Glob:
		return glob(r.Path, path)
	case Regex:
		return r.re.MatchString(path)
	}
	return true
}

// glob matches the whole of s; * is any run of characters, slashes too, ? any one.
// It takes time proportional to len(pattern) × len(s) at worst.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0: // let the last star take one more
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// find is the route of the host for a normalised path, nil when only a default
// backend is left.
func (h *host) find(path string) *Route {
	if r := h.exact[path]; r != nil {
		return r // no literal part can be longer than the whole path
	}
	best := h.longestPrefix(path)
	for _, r := range h.patterns {
		if best != nil && r.rank <= best.rank {
			break
		}
		if r.matches(path) {
			return r
		}
	}
	return best
}

func (h *host) longestPrefix(path string) *Route {
	if len(h.prefix) == 0 {
		return nil
	}
	for p := strings.TrimRight(path, "/"); ; {
		if r := h.prefix[p]; r != nil {
			return r
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return nil
		}
		p = p[:i]
	}
}

// hostFor finds the routes for a normalised host: exact, single-label wildcard, any.
// A host that is found hides the others, whatever its paths.
func (t *Table) hostFor(name string) *host {
	if name != "" {
		if h := t.hosts[name]; h != nil {
			return h
		}
		if w := wildcardOf(name); w != "" {
			if h := t.hosts[w]; h != nil {
				return h
			}
		}
	}
	return t.hosts[""]
}

func (t *Table) find(name, path string) *Route {
	h := t.hostFor(name)
	if h == nil {
		return t.catchAll
	}
	if r := h.find(path); r != nil {
		return r
	}
	if h.fallback != nil {
		return h.fallback
	}
	return t.catchAll
}

// Lookup finds the route of a request by its Host field (or :authority) and the path
// of its target as sent, and gives the path to forward. A nil Route means the built-in
// 404; an error wraps ErrBadPath and means 400.
func (t *Table) Lookup(hostField, rawPath string) (r *Route, host string, path Path, err error) {
	host, ok := NormalHost(hostField)
	if !ok {
		return nil, "", Path{}, fmt.Errorf("%w: host %q", ErrBadPath, hostField)
	}
	if path, err = ParsePath(rawPath, t.cfg.KeepSlashes); err != nil {
		return nil, host, path, err
	}
	r = t.find(host, path.Match)
	if path.Alt != "" && !r.spelled() {
		if other := t.find(host, path.Alt); other != r {
			return nil, host, path, fmt.Errorf("%w: %q reads as %q to some servers, which is another route", ErrBadPath, path.Match, path.Alt)
		}
	}
	return r, host, path, nil
}

// spelled tells whether the rule itself is written with what is ambiguous elsewhere.
func (r *Route) spelled() bool { return r != nil && ambiguous(r.Path) }

// Match is Lookup with its reasons: one Step per decision.
func (t *Table) Match(hostField, rawPath string) (*Route, []packet.Step) {
	r, name, path, err := t.Lookup(hostField, rawPath)
	var steps []packet.Step
	say := func(where, format string, args ...any) {
		steps = append(steps, packet.Step{Where: where, What: fmt.Sprintf(format, args...)})
	}
	if path.Text != "" && path.Text != rawPath {
		say("path "+rawPath, "normalised to %s", path.Text)
	}
	if err != nil {
		say("request", "answered 400: %v", err)
		return nil, steps
	}
	h := t.hostFor(name)
	say("host "+name, "%s", t.whyHost(name, h))
	if h != nil {
		for _, c := range h.routes {
			if c == r {
				break
			}
			say("route "+c.title(), "passed over: %s", c.whyNot(path.Match))
		}
	}
	if r == nil {
		for _, o := range t.foreign {
			if o.rulesFor(name) {
				say("Ingress "+o.Name.String(), "has this host but is not served here: %s", o.why)
			}
		}
		say("default backend", "nothing matches and no default backend is set: 404")
		return nil, steps
	}
	say("route "+r.title(), "%s; Ingress %s is served because %s", r.whyMatch(h), r.Ingress, r.why)
	return r, steps
}

// rulesFor tells whether a rule of the Ingress is for host.
func (o *owned) rulesFor(host string) bool {
	return slices.ContainsFunc(o.Rules, func(r model.Rule) bool {
		h, ok := ruleHost(r.Host)
		return ok && (h == host || h != "" && h == wildcardOf(host) || h == "")
	})
}

func (t *Table) whyHost(name string, h *host) string {
	switch {
	case h == nil:
		return "no rule for this host, its wildcard, or any host"
	case h.name == name && name != "":
		return "exact host of a rule; wildcards and rules without host are hidden"
	case h.name == "":
		return "no rule for this host or its wildcard; rules without host apply"
	}
	return "matches wildcard " + h.name + " in one label"
}

func (r *Route) title() string {
	host := r.Host
	if host == "" {
		host = "*"
	}
	return host + r.Path + " " + string(r.Kind)
}

func (r *Route) whyNot(path string) string {
	switch {
	case r.Kind == Exact:
		return path + " is not equal"
	case r.Kind == Prefix && strings.HasPrefix(path, strings.TrimRight(r.Path, "/")):
		return "prefixes end at a slash"
	}
	return path + " does not match"
}

func (r *Route) whyMatch(h *host) string {
	switch {
	case r.Kind == Default && h != nil && r == h.fallback:
		return "no path of the host matches: the Ingress's defaultBackend"
	case r.Kind == Default:
		return "nothing else matches: the catch-all default backend"
	case r.Kind == Exact:
		return "equal"
	}
	return "the longest match"
}
