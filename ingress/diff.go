package ingress

import (
	"slices"
	"strings"

	"fairway/model"
)

// Diff lists the lines of Text that leave (-) and come (+) between two tables; either
// may be nil.
func Diff(old, new *Table) []string {
	have, want := lines(old), lines(new)
	return append(missing("-", have, want), missing("+", want, have)...)
}

// missing lists what is in a and not in b.
func missing(sign string, a, b []string) []string {
	in := make(map[string]bool, len(b))
	for _, l := range b {
		in[l] = true
	}
	var out []string
	for _, l := range a {
		if !in[l] {
			out = append(out, sign+l)
		}
	}
	return out
}

func lines(t *Table) []string {
	if t == nil {
		return nil
	}
	return strings.FieldsFunc(t.Text(), func(c rune) bool { return c == '\n' })
}

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
