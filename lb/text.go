package lb

import (
	"fmt"
	"strings"
)

// Text prints one line per address and one per Service without one, in the order of
// Services: what `compile --part lb` shows.
//
//	192.0.2.10 Service shop/web pool first announced by node n1 on eth0
//	<pending> Service shop/api (NoPool)
//
// An address Assign has just chosen and no status shows yet is "not announced yet".
func Text(res Result, list []Announcement) string {
	byAddr := make(map[string]Announcement, len(list))
	for _, an := range list {
		byAddr[an.Addr.String()] = an
	}
	var b strings.Builder
	for _, w := range res.Wants {
		textWant(&b, w, byAddr)
	}
	return b.String()
}

func textWant(b *strings.Builder, w Want, byAddr map[string]Announcement) {
	if len(w.Addrs) == 0 {
		switch {
		case w.Finalizer == RemoveFinalizer || w.Service.Deleting:
			fmt.Fprintf(b, "<released> Service %s\n", w.Service.Name)
		case len(w.Conditions) > 0:
			fmt.Fprintf(b, "<pending> Service %s (%s)\n", w.Service.Name, w.Conditions[0].Reason)
		}
		return
	}
	for _, ip := range w.Addrs {
		fmt.Fprintf(b, "%s Service %s", ip, w.Service.Name)
		an, known := byAddr[ip.String()]
		switch {
		case known && an.Pool != nil:
			fmt.Fprintf(b, " pool %s", an.Pool.Name.Name)
		case !known && w.Pool.Name != "":
			fmt.Fprintf(b, " pool %s", w.Pool.Name)
		default:
			b.WriteString(" in no pool")
		}
		switch {
		case !known:
			b.WriteString(" not announced yet")
		case an.Node == "":
			b.WriteString(" announced by nobody")
		default:
			fmt.Fprintf(b, " announced by node %s", an.Node)
			if len(an.Interfaces) > 0 {
				fmt.Fprintf(b, " on %s", strings.Join(an.Interfaces, ","))
			}
		}
		b.WriteByte('\n')
	}
}
