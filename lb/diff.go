package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairway/model"
)

// Diff returns the Wants whose Service does not show them yet in status or
// finalizers: what has to be written.
func Diff(res Result) []Want {
	var out []Want
	for _, w := range res.Wants {
		if w.Finalizer != KeepFinalizer || !shows(w.Service, w.Addrs) {
			out = append(out, w)
		}
	}
	return out
}

// shows tells whether status is exactly addrs, each with ipMode VIP. A hostname in a
// status that should be empty or otherwise is a difference too.
func shows(s *model.Service, addrs []netip.Addr) bool {
	if len(s.Ingress) != len(addrs) {
		return false
	}
	for i, in := range s.Ingress {
		if in.IP != addrs[i] || in.Proxy || in.Hostname != "" {
			return false
		}
	}
	return true
}

// DiffText prints Diff as lines of what status has (-) and should have (+).
func DiffText(res Result) string {
	var b strings.Builder
	for _, w := range Diff(res) {
		for _, in := range w.Service.Ingress {
			if !slices.Contains(w.Addrs, in.IP) {
				fmt.Fprintf(&b, "- Service %s %s%s\n", w.Service.Name, addrText(in.IP), in.Hostname)
			}
		}
		held := heldAddrs(w.Service)
		for _, ip := range w.Addrs {
			if !slices.Contains(held, ip) {
				fmt.Fprintf(&b, "+ Service %s %s\n", w.Service.Name, ip)
			}
		}
		switch w.Finalizer {
		case AddFinalizer:
			fmt.Fprintf(&b, "+ Service %s finalizer %s\n", w.Service.Name, CleanupFinalizer)
		case RemoveFinalizer:
			fmt.Fprintf(&b, "- Service %s finalizer %s\n", w.Service.Name, CleanupFinalizer)
		}
	}
	return b.String()
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
