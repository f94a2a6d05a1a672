package userspace

import (
	"fmt"
	"slices"

	"fairway/proxy/nftables"
)

// Diff tells what leads from one Program to another: listeners to open and to close, and
// those whose lists change, by line; and the Change of the capture. Have may be nil.
func Diff(have, want *Program) (listeners []string, capture *nftables.Change) {
	if have == nil {
		have = &Program{}
	}
	old := make(map[string]*Listener, len(have.Listeners))
	for _, l := range have.Listeners {
		old[l.Name] = l
	}
	for _, l := range want.Listeners {
		was := old[l.Name]
		delete(old, l.Name)
		switch {
		case was == nil:
			listeners = append(listeners, "open "+l.text())
		case was != l && was.text() != l.text():
			listeners = append(listeners, "change "+l.text())
		}
	}
	for _, l := range old {
		listeners = append(listeners, fmt.Sprintf("close %s %s # %s\n", l.Key.Proto, l.Addr, l.Name))
	}
	slices.Sort(listeners)
	return listeners, nftables.Diff(have.Capture(), want.Capture())
}

// OwnTable has lines of nft commands that came from the nftables room say this mode's
// table.
func OwnTable(lines []string) []string {
	for i := range lines {
		lines[i] = ownTable(lines[i])
	}
	return lines
}
