package dns

import "slices"

// Diff lists the records that b has and a has not ("+" lines) and the other way round
// ("-" lines), Service by Service. Serial numbers are not compared. A nil Zone is
// empty.
func Diff(a, b *Zone) []string {
	if a == nil {
		a = &Zone{}
	}
	if b == nil {
		b = &Zone{}
	}
	if a == b {
		return nil
	}
	out := diffLines(a.otherLines(), b.otherLines())
	old, now := a.parts, b.parts
	for len(old) > 0 || len(now) > 0 {
		var from, to *part
		order := compareHeads(old, now)
		if order <= 0 {
			from, old = old[0], old[1:]
		}
		if order >= 0 {
			to, now = now[0], now[1:]
		}
		if from != to {
			out = append(out, diffLines(from.linesOrNone(), to.linesOrNone())...)
		}
	}
	return out
}

// compareHeads tells which list has the lower Service name at its head.
func compareHeads(old, now []*part) int {
	switch {
	case len(old) == 0:
		return 1
	case len(now) == 0:
		return -1
	}
	return old[0].svc.Name.Compare(now[0].svc.Name)
}

func (p *part) linesOrNone() []string {
	if p == nil {
		return nil
	}
	return p.lines()
}

// otherLines are the records that belong to no Service, but for SOA.
func (z *Zone) otherLines() []string {
	if z.cfg == nil {
		return nil
	}
	var out []string
	i := 0
	for line := range z.apexLines() {
		if i++; i > len(z.soa) {
			out = append(out, line)
		}
	}
	return append(out, z.podLines()...)
}

func diffLines(a, b []string) []string {
	var out []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "-"+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "+"+line)
		}
	}
	return out
}
