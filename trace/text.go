package trace

import (
	"fmt"
	"strings"
)

// Text prints a Report for a person.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "from %s\nto   %s\n", r.From, r.To)
	for i, p := range r.Parts {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, p.Title)
		width := 0
		for _, s := range p.Steps {
			width = max(width, min(len(s.Where), 44))
		}
		for _, s := range p.Steps {
			fmt.Fprintf(&b, "   %-*s  %s\n", width, s.Where, s.What)
		}
		if p.Result != "" {
			fmt.Fprintf(&b, "   => %s\n", p.Result)
		}
	}
	switch {
	case r.Arrives:
		b.WriteString("\narrives\n")
	case r.Leaves:
		fmt.Fprintf(&b, "\nleaves the cluster: %s\n", r.Result)
	default:
		fmt.Fprintf(&b, "\ndoes not arrive: %s\n", r.Result)
	}
	return b.String()
}
