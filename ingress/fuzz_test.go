package ingress

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fairway/model"
)

// The invariants of a normalised path, whatever was sent.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/", "/a/b/", "//a", "/a/../b", "/a/%2e%2e/b", "/a%2Fb", "/a%5cb", "/x;y=1/z", "/%zz", "/a%00", "/é", "/a%21b", "/..;/x", "/a/.", "/a//..", "/%252e/", "/*", "/a b"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, raw string, keep bool) {
		p, err := ParsePath(raw, keep)
		if err != nil {
			return
		}
		again, err := ParsePath(p.Text, keep)
		if err != nil || again != p {
			t.Errorf("%q: %+v becomes %+v (%v) the second time", raw, p, again, err)
		}
		for _, form := range []string{p.Text, p.Match, p.Alt} {
			checkForm(t, raw, form, keep)
		}
	})
}

func checkForm(t *testing.T, raw, form string, keep bool) {
	if form == "" {
		return
	}
	if form[0] != '/' || !keep && strings.Contains(form, "//") || strings.Contains(form, "%2E") || strings.ContainsAny(form, "\\?# \r\n\x00") {
		t.Errorf("%q gives %q", raw, form)
	}
	for _, s := range strings.Split(form, "/") {
		if s == "." || s == ".." {
			t.Errorf("%q gives %q with dot segments", raw, form)
		}
	}
}

func FuzzNormalHost(f *testing.F) {
	for _, s := range []string{"a.example.com", "A.example.com.:80", "[::1]:443", "a..b", "*.x", "a:b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		h, ok := NormalHost(raw)
		if !ok {
			return
		}
		if again, ok := NormalHost(h); !ok || again != h && !strings.HasSuffix(h, ".") {
			t.Errorf("%q: %q becomes %q (%v)", raw, h, again, ok)
		}
		if strings.ContainsAny(h, "/\\ \r\n\"") || h != strings.ToLower(h) {
			t.Errorf("%q gives %q", raw, h)
		}
	})
}

func FuzzFromV1beta1(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"a"},"spec":{"backend":{"serviceName":"s","servicePort":80}}}`))
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1beta1","kind":"Ingress","spec":{"rules":[{"host":"h","http":{"paths":[{"path":"/*","backend":{"serviceName":"s","servicePort":"http"}}]}},{"host":"n"}]}}`))
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1beta1","kind":"Ingress","spec":{"backend":{"serviceName":"s","servicePort":"99999999999"}}}`))
	f.Add([]byte(`{"kind":"Ingress"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ing, problems := FromV1beta1(raw)
		if ing == nil {
			if len(problems) == 0 {
				t.Error("nothing came out and nothing was said")
			}
			return
		}
		if _, err := json.Marshal(ing); err != nil {
			t.Error(err)
		}
		in := model.Objects{}
		in.Ingresses = append(in.Ingresses, ing)
		snap, _ := model.Build(nil, in)
		Build(nil, snap, Config{WithoutClass: true})
	})
}

// The maps of a host must find what trying every route in order finds.
func TestIndexAgreesWithOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	segment := func() string { return pick("/a", "/b", "/ab", "/a.b", "", "/") }
	for range 3000 {
		h := &host{}
		for range 1 + r.IntN(6) {
			route := &Route{Kind: Default}
			path := strings.ReplaceAll("/"+segment()+segment(), "//", "/") + pick("", "*", "?", "/*", ".*")
			path = strings.ReplaceAll(path, "//", "/")
			typ := model.PathType(pick("Exact", "Prefix", "ImplementationSpecific"))
			if typ != model.ImplementationSpecific {
				path = strings.Trim(path, "*?")
			}
			if path == "" {
				path = "/"
			}
			route.readPath(model.Path{Path: path, Type: typ}, r.IntN(3) == 0, compileRegex)
			if route.Kind != Default {
				h.add(route)
			}
		}
		h.sort()
		path, err := ParsePath("/"+segment()+segment()+segment(), false)
		if err != nil {
			t.Fatal(err)
		}
		var want *Route
		if i := slices.IndexFunc(h.routes, func(r *Route) bool { return r.matches(path.Match) }); i >= 0 {
			want = h.routes[i]
		}
		if got := h.find(path.Match); got != want {
			t.Fatalf("%s: index finds %+v, order %+v", path.Match, got, want)
		}
	}
}
