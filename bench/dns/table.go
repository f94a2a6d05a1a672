package main

import (
	"fmt"
	"slices"
	"strings"
)

// table gathers results and prints the middle of each kind, with the share of CoreDNS's
// and NSD's processor time. "us slowly" is what a query costs at the fixed rate, where
// few come together.
type table struct {
	services int
	results  []result
}

func (t *table) add(r result) { t.results = append(t.results, r) }

func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Services\n%-10s %-14s %18s %9s %9s %9s %7s %9s %7s %7s %7s\n", t.services,
		"load", "server", "us/query (range)", "/coredns", "/nsd", "best QPS", "lost", "us slowly", "p50 ms", "p99 ms", "bytes")
	for _, load := range t.distinct(func(r result) string { return r.load }) {
		for _, server := range t.distinct(func(r result) string { return r.server }) {
			t.line(&b, load, server)
		}
	}
	return b.String()
}

func (t *table) line(b *strings.Builder, load, server string) {
	of := t.of(load, server, false)
	if len(of) == 0 {
		return
	}
	if of[0].gap > 0 {
		fmt.Fprintf(b, "%-10s %-14s %d ms without an answer\n", load, server, of[0].gap.Milliseconds())
		return
	}
	if load == "memory" {
		fmt.Fprintf(b, "%-10s %-14s %.1f MB resident, %.1f MB at most\n", load, server, of[0].rss, of[0].peak)
		return
	}
	cpu := column(of, func(r result) float64 { return r.cpu })
	ratio := func(to string) string {
		other := column(t.of(load, to, false), func(r result) float64 { return r.cpu })
		if len(other) == 0 || to == server {
			return "-"
		}
		return fmt.Sprintf("%.2f", middle(cpu)/middle(other))
	}
	lost := 0
	for _, r := range t.results {
		if r.load == load && r.server == server {
			lost += r.lost
		}
	}
	fixed := t.of(load, server, true)
	qps := column(of, func(r result) float64 { return r.qps })
	fmt.Fprintf(b, "%-10s %-14s %6.2f (%.2f-%.2f) %9s %9s %9.0f %7d %9.2f %7.2f %7.2f %7.0f\n", load, server,
		middle(cpu), cpu[0], cpu[len(cpu)-1], ratio("coredns"), ratio("nsd"), qps[len(qps)-1], lost,
		middle(column(fixed, func(r result) float64 { return r.cpu })),
		middle(column(fixed, func(r result) float64 { return r.p50 })), middle(column(fixed, func(r result) float64 { return r.p99 })),
		middle(column(of, func(r result) float64 { return r.bytes })))
}

func (t *table) of(load, server string, fixed bool) []result {
	var out []result
	for _, r := range t.results {
		if r.load == load && r.server == server && r.fixed == fixed {
			out = append(out, r)
		}
	}
	return out
}

func (t *table) distinct(key func(result) string) []string {
	var out []string
	for _, r := range t.results {
		if k := key(r); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// column is a sorted column.
func column(list []result, value func(result) float64) []float64 {
	var out []float64
	for _, r := range list {
		out = append(out, value(r))
	}
	slices.Sort(out)
	return out
}

func middle(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
