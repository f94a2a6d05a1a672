package iptables

// Text is the whole Program of a family as an iptables-restore file, jumps in the
// kernel's chains included.
func (p *Program) Text(v6 bool) string {
	var b []byte
	for _, t := range p.family(v6).tables() {
		b = append(append(append(b, '*'), t.Name...), '\n')
		for _, c := range t.Chains {
			if !builtin(c.Name) {
				b = appendDeclaration(b, c.Name)
			}
		}
		for _, c := range t.Chains {
			b = appendRules(b, c)
		}
		b = append(b, "COMMIT\n"...)
	}
	return string(b)
}

// appendDeclaration creates a chain, or empties the one that is there.
func appendDeclaration(b []byte, name string) []byte {
	b = append(append(b, ':'), name...)
	return append(b, " - [0:0]\n"...)
}

func appendRules(b []byte, c Chain) []byte {
	for _, r := range c.Rules {
		b = append(append(append(b, "-A "...), c.Name...), ' ')
		b = append(r.append(b), '\n')
	}
	return b
}
