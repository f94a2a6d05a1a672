package userspace

import (
	"fmt"
	"strings"

	"fairway/proxy/nftables"
)

// Text prints the listeners, one a line with their endpoints below, then the nft script
// of the capture.
func (p *Program) Text() string {
	var b strings.Builder
	for _, l := range p.Listeners {
		b.WriteString(l.text())
	}
	if rules := p.Capture(); rules != nil {
		b.WriteString(ownTable(rules.Text()))
	}
	return b.String()
}

func (l *Listener) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen %s %s # %s\n", l.Key.Proto, l.Addr, l.Name)
	if l.restricted {
		fmt.Fprintf(&b, "  from %v\n", l.sourceRanges)
	}
	for i, list := range l.Lists {
		b.WriteString("  ")
		if l.split != nil {
			fmt.Fprintf(&b, "%s: ", []string{"node and its pods", "others"}[i])
		}
		fmt.Fprintf(&b, "%s", list.Scheduler)
		if list.Affinity > 0 {
			fmt.Fprintf(&b, " affinity %s", list.Affinity)
		}
		b.WriteString(" to")
		for _, t := range list.Targets {
			fmt.Fprintf(&b, " %s", t)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// ownTable renames the table of nft commands.
func ownTable(text string) string {
	for _, family := range []string{"ip", "ip6"} {
		text = strings.ReplaceAll(text, family+" "+nftables.TableName, family+" "+TableName)
	}
	return text
}
