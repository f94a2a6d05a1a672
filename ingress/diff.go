package ingress

import "strings"

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
