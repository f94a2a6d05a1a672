package ingress

import (
	"cmp"
	"fmt"
	"slices"

	"fairway/model"
)

const annotationClass = "kubernetes.io/ingress.class"

// classes answers which Ingress is ours.
type classes struct {
	cfg    Config
	byName map[string]*model.IngressClass
	def    *model.IngressClass // the default class, when it is for us to apply it
}

func newClasses(snap *model.Snapshot, cfg Config) *classes {
	c := &classes{cfg: cfg, byName: make(map[string]*model.IngressClass, len(snap.Classes))}
	var defaults []*model.IngressClass
	for _, k := range snap.Classes {
		c.byName[k.Name] = k
		if k.Default {
			defaults = append(defaults, k)
		}
	}
	if cfg.AdmitDefaultClass && len(defaults) > 0 {
		// The API server's admission takes the newest, then the first by name.
		c.def = slices.MinFunc(defaults, func(a, b *model.IngressClass) int {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
		})
	}
	return c
}

func (c *classes) controls(k *model.IngressClass) bool {
	return k.Controller == ControllerName || slices.Contains(c.cfg.Controllers, k.Controller)
}

// choose says whether an Ingress is ours and why. The order is ingress-nginx's:
// the field, then the annotation, then the option for those that name none. A class
// of another controller is no Problem; a class nobody defined is one.
func (c *classes) choose(i *model.Ingress) (ours bool, why string, problem *model.Problem) {
	if i.Class != "" {
		return c.byField(i, i.Class, "spec.ingressClassName")
	}
	if a, ok := i.Annotations[annotationClass]; ok && a != "" {
		return c.byAnnotation(a)
	}
	if c.def != nil {
		return c.byField(i, c.def.Name, "the default class")
	}
	if c.cfg.WithoutClass {
		return true, "it names no class, and such Ingresses are served here", nil
	}
	return false, "it names no class", nil
}

func (c *classes) byField(i *model.Ingress, name, field string) (bool, string, *model.Problem) {
	if c.cfg.ClassByName && slices.Contains(c.cfg.ClassNames, name) {
		return true, fmt.Sprintf("%s %s is served by name", field, name), nil
	}
	k := c.byName[name]
	if k == nil {
		p := i.Problem("spec.ingressClassName", "UnknownIngressClass", fmt.Sprintf(
			"no IngressClass %q exists, so no controller serves this Ingress; create it with spec.controller %s, or name another", name, ControllerName))
		return false, fmt.Sprintf("no IngressClass %s exists", name), &p
	}
	why := fmt.Sprintf("%s %s has controller %s", field, name, k.Controller)
	return c.controls(k), why, nil
}

func (c *classes) byAnnotation(value string) (bool, string, *model.Problem) {
	if slices.Contains(c.cfg.ClassNames, value) {
		return true, fmt.Sprintf("annotation %s: %s is served by name", annotationClass, value), nil
	}
	if k := c.byName[value]; k != nil {
		return c.controls(k), fmt.Sprintf("annotation %s: %s, whose controller is %s", annotationClass, value, k.Controller), nil
	}
	return false, fmt.Sprintf("annotation %s: %s belongs to another controller", annotationClass, value), nil
}
