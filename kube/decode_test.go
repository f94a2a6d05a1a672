package kube

import (
	"slices"
	"testing"

	"fairway/model"
)

func reasons(problems []model.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Reason)
	}
	slices.Sort(out)
	return out
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       string
		services []string
		problems []string
	}{
		{"two documents", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\n# only a comment\n---\napiVersion: v1\nkind: Service\nmetadata: {name: b, namespace: x}\n",
			[]string{"default/a", "x/b"}, nil},
		{"a List, as kubectl prints", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}},{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"}}]}`,
			[]string{"default/a"}, nil},
		{"a broken document among good ones", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\na: b: c\n---\napiVersion: v1\nkind: Service\nmetadata: {name: b}\n",
			[]string{"default/a", "default/b"}, []string{"UnreadableDocument"}},
		{"a misspelt field keeps the object", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIp: 10.96.0.1}\n",
			[]string{"default/a"}, []string{"UnknownField"}},
		{"a field of the wrong type loses the object", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: 80}\n",
			nil, []string{"UnreadableDocument"}},
		{"no kind", "hello: world\n", nil, []string{"UnreadableDocument"}},
		{"no name", "apiVersion: v1\nkind: Service\n", nil, []string{"UnreadableDocument"}},
		{"a key twice", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nmetadata: {name: b}\n", nil, []string{"UnreadableDocument"}},
		{"empty", "", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, problems := Decode("f.yaml", []byte(c.in))
			var names []string
			for _, s := range o.Services {
				names = append(names, s.Namespace+"/"+s.Name)
			}
			if !slices.Equal(names, c.services) || !slices.Equal(reasons(problems), c.problems) {
				t.Errorf("services %v problems %v, want %v and %v", names, problems, c.services, c.problems)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n---\n{}"))
	f.Add([]byte(`{"kind":"List","apiVersion":"v1","items":[{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"x"}}]}`))
	f.Add([]byte("apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\nspec: {backend: {serviceName: s, servicePort: http}}"))
	f.Add([]byte("apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: a}\nspec: {addresses: [10.0.0.1-10.0.0.2]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, _ := Decode("fuzz", data)
		o, _ = Unique(o)
		model.Build(nil, o) // whatever was read must be buildable
	})
}
