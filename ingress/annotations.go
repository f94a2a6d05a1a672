package ingress

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairway/model"
)

// Settings are what an Ingress's annotations ask of its routes. Zero durations mean
// the server's own.
type Settings struct {
	SSLRedirect      bool // redirect http to https where the host has TLS
	ForceSSLRedirect bool // redirect whether it has or not
	Affinity         *Affinity
	// BodyLimit is in bytes, 0 for none, -1 for the server's own.
	BodyLimit      int64
	ConnectTimeout time.Duration
	ReadTimeout    time.Duration // between two reads
	SendTimeout    time.Duration // between two writes
	Regex          bool          // ImplementationSpecific paths are regular expressions
	Canary         bool
	// Refused is why every route of the Ingress answers 503: an annotation that
	// protects something is not honoured here.
	Refused  string
	Verdicts []Verdict

	problems []model.Problem
}

// Affinity is the session cookie of a route.
type Affinity struct {
	Name     string
	Path     string // empty: the route's path
	Domain   string
	SameSite string // None, Lax, Strict, or empty
	MaxAge   int    // seconds; 0 is none
	Expires  int    // seconds from now; 0 is none
	// Secure is nil when it follows the request: set on https.
	Secure *bool
}

// Effect is what an annotation does here, against its own controller.
type Effect string

// The verdicts of analyse.
const (
	Same    Effect = "same"
	Differs Effect = "differs"
	Refused Effect = "refused" // protects something and cannot be honoured: 503
	Ignored Effect = "ignored"
)

// Verdict is the effect of one annotation of one Ingress.
type Verdict struct {
	Key, Value string
	Effect     Effect
	Note       string
}

// reader collects the settings of one Ingress.
type reader struct {
	ing      *model.Ingress
	s        *Settings
	affinity Affinity
	cookie   bool
	key      string // full name of the annotation being read
}

// Analyse gives the verdict on each annotation of an Ingress meant for an Ingress
// controller, in order of key.
func Analyse(i *model.Ingress, cfg Config) []Verdict { return readSettings(i, cfg).Verdicts }

func readSettings(i *model.Ingress, cfg Config) *Settings {
	r := &reader{
		ing: i, affinity: Affinity{Name: "INGRESSCOOKIE"},
		s: &Settings{SSLRedirect: !cfg.DisableSSLRedirect, BodyLimit: -1},
	}
	prefix := cfg.AnnotationPrefix
	if prefix == "" {
		prefix = "nginx.ingress.kubernetes.io"
	}
	for _, key := range slices.Sorted(maps.Keys(i.Annotations)) {
		family, name, _ := strings.Cut(key, "/")
		r.key = key
		value := strings.TrimSpace(i.Annotations[key])
		switch {
		case value == "": // unset, as ingress-nginx reads it
		case family == prefix:
			r.nginx(name, value)
		case family == "alb.ingress.kubernetes.io":
			r.alb(name, value)
		case family == "kubernetes.io", family == "ingress.gcp.kubernetes.io", family == "networking.gke.io":
			r.gce(name, value)
		}
	}
	if r.cookie {
		r.s.Affinity = &r.affinity
	}
	r.report()
	return r.s
}

func (r *reader) verdict(e Effect, value, note string) {
	r.s.Verdicts = append(r.s.Verdicts, Verdict{Key: r.key, Value: value, Effect: e, Note: note})
}

// invalid reports a value that cannot be read; the default stays.
func (r *reader) invalid(value, want string) {
	r.verdict(Ignored, value, "invalid: want "+want)
	r.s.problems = append(r.s.problems, r.ing.Problem("metadata.annotations["+r.key+"]", "InvalidAnnotation",
		fmt.Sprintf("%q is not %s; the default is used", value, want)))
}

// report folds the verdicts into at most one Problem for the refused and one for the
// ignored annotations.
func (r *reader) report() {
	var refused, ignored []string
	for _, v := range r.s.Verdicts {
		switch {
		case v.Effect == Refused:
			refused = append(refused, v.Key)
		case v.Effect == Ignored && !strings.HasPrefix(v.Note, "invalid"):
			ignored = append(ignored, v.Key)
		}
	}
	if len(refused) > 0 {
		r.s.Refused = "annotations it is unsafe without are not supported: " + strings.Join(refused, ", ")
		r.s.problems = append(r.s.problems, r.ing.Problem("metadata.annotations", "AnnotationRefused",
			"every route answers 503, because serving it without honouring "+strings.Join(refused, ", ")+" would be unsafe; remove what is not needed"))
	}
	if len(ignored) > 0 {
		r.s.problems = append(r.s.problems, r.ing.Problem("metadata.annotations", "AnnotationIgnored",
			"these annotations have no effect here: "+strings.Join(ignored, ", ")))
	}
}

func (r *reader) boolean(value string, set func(bool)) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		r.invalid(value, "true or false")
		return
	}
	set(b)
	r.verdict(Same, value, "")
}

// seconds reads a whole number of seconds, at least min.
func (r *reader) seconds(value string, min int, set func(int)) {
	n, err := strconv.Atoi(strings.TrimSuffix(value, "s"))
	if err != nil || n < min || n > 1<<31-1 {
		r.invalid(value, fmt.Sprintf("a number of seconds from %d", min))
		return
	}
	set(n)
	r.verdict(Same, value, "")
}

// text accepts values that can stand in a Set-Cookie field without changing it.
func (r *reader) text(value, want string, ok func(string) bool, set func(string)) {
	if !ok(value) {
		r.invalid(value, want)
		return
	}
	set(value)
	r.verdict(Same, value, "")
}

// size reads nginx sizes: bytes, or with k, m, g.
func (r *reader) size(value string) {
	v := strings.ToLower(value)
	shift := 0
	switch v[len(v)-1] {
	case 'k':
		shift = 10
	case 'm':
		shift = 20
	case 'g':
		shift = 30
	}
	if shift > 0 {
		v = v[:len(v)-1]
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		r.invalid(value, "a size such as 8m")
		return
	}
	r.s.BodyLimit = n << shift
	r.verdict(Same, value, "")
}

func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func isCookiePath(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] >= 0x7f || s[i] == ';' {
			return false
		}
	}
	return strings.HasPrefix(s, "/")
}

func isDomain(s string) bool {
	h, ok := NormalHost(strings.TrimPrefix(s, "."))
	return ok && h != "" && !strings.Contains(s, ":")
}
