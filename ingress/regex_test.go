package ingress

import (
	"strings"
	"testing"

	"fairway/model"
)

// TestRegexCost: what people write is served; what explodes when written out is refused
// before it costs anything, for all it might match.
func TestRegexCost(t *testing.T) {
	for path, refusedFor := range map[string]string{
		`/api/v[0-9]+/(users|orders)/[a-f0-9-]{36}$`:         "",
		`/something(/|$)(.*)`:                                "",
		`/[a-z]{2}(-[a-z]{2})?/.*\.(png|jpe?g|gif)$`:         "",
		`/\w{1,64}/\d{1,20}`:                                 "",
		`/x/(?:[\pL\pN\pS]{0,1000})`:                         "/x/",
		`/y` + strings.Repeat(`(?:[\pL\pN\pS]{0,999})`, 100): "/y",
		`/a{1000}{1000}{1000}`:                               "/",
		`/z((((a{10}){10}){10}){10}){10}`:                    "/z",
		`/b(?:\pL{900})|/admin`:                              "/",
		`/(`:                                                 "/",
	} {
		r := &Route{Kind: Default}
		problem := r.readPath(model.Path{Path: path, Type: model.ImplementationSpecific}, true, compileRegex)
		got := ""
		if r.Refused != "" {
			got = r.Path
		}
		if got != refusedFor || (problem != "") != (refusedFor != "") {
			t.Errorf("%.40q: refused for %q, want %q (%.90s)", path, got, refusedFor, problem)
		}
	}
}

// TestRegexKept: a Table takes its expressions over from the one before.
func TestRegexKept(t *testing.T) {
	first := &builder{prev: &Table{}, table: &Table{regexes: map[string]compiled{}}}
	a := first.regex("/a(b|c)+")
	second := &builder{prev: first.table, table: &Table{regexes: map[string]compiled{}}}
	if b := second.regex("/a(b|c)+"); a.re == nil || a.re != b.re {
		t.Error("compiled again")
	}
}

// TestPatternTwice: of equal patterns the first stays, whatever their number.
func TestPatternTwice(t *testing.T) {
	h := &host{}
	first := &Route{Kind: Glob, Path: "/*a"}
	if h.add(first) != nil || h.add(&Route{Kind: Plain, Path: "/*a"}) != nil || h.add(&Route{Kind: Glob, Path: "/*a"}) != first {
		t.Error("the first of equal patterns is not told")
	}
	if len(h.patterns) != 2 || len(h.routes) != 2 {
		t.Errorf("%d patterns, %d routes, want 2", len(h.patterns), len(h.routes))
	}
}
