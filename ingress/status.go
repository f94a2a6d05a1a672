package ingress

import (
	"slices"

	"fairway/model"
)

// Status is what status.loadBalancer of one Ingress should say.
type Status struct {
	Ingress   *model.Ingress
	Addresses []string
}

// StatusChanges lists our Ingresses whose published addresses differ from the
// configured ones (sorted, each once). Ingresses of others are never in it, and one
// that is right is not written again.
func (t *Table) StatusChanges() []Status {
	want := slices.Compact(slices.Sorted(slices.Values(t.cfg.PublishedAddresses)))
	var out []Status
	for _, o := range t.owned {
		if !slices.Equal(slices.Sorted(slices.Values(o.Addresses)), want) {
			out = append(out, Status{Ingress: o.Ingress, Addresses: want})
		}
	}
	return out
}

// Owned lists the Ingresses that are ours, in order of precedence.
func (t *Table) Owned() []*model.Ingress {
	out := make([]*model.Ingress, len(t.owned))
	for i, o := range t.owned {
		out[i] = o.Ingress
	}
	return out
}

// SecretRefs lists the Secrets our Ingresses and the configuration name, sorted, each
// once, whether they exist or not: all a source needs to read.
func (t *Table) SecretRefs() []model.Name {
	var out []model.Name
	if t.cfg.DefaultCertificate != (model.Name{}) {
		out = append(out, t.cfg.DefaultCertificate)
	}
	for _, o := range t.owned {
		for _, e := range o.TLS {
			if e.Secret != "" {
				out = append(out, model.Name{Namespace: o.Name.Namespace, Name: e.Secret})
			}
		}
	}
	slices.SortFunc(out, model.Name.Compare)
	return slices.Compact(out)
}
