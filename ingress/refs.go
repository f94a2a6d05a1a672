package ingress

import (
	"slices"

	"fairway/model"
)

// SecretRefs are the Secrets the Ingresses served here refer to, and the default
// certificate's: nothing else of that kind need ever be read.
func (t *Table) SecretRefs() []model.Name {
	var out []model.Name
	if t.cfg.DefaultCertificate.Name != "" {
		out = append(out, t.cfg.DefaultCertificate)
	}
	for _, o := range t.owned {
		for _, tls := range o.TLS {
			if tls.Secret != "" {
				out = append(out, model.Name{Namespace: o.Name.Namespace, Name: tls.Secret})
			}
		}
	}
	slices.SortFunc(out, model.Name.Compare)
	return slices.Compact(out)
}
