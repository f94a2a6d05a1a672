package report

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// contestant is a program in a mode, in the order of the rows.
type contestant struct{ program, mode string }

func (c contestant) String() string { return c.program + " " + c.mode }

// contestants are those that have rows, the ones of one mode side by side.
func (rows Rows) contestants() []contestant {
	var out []contestant
	for _, r := range rows {
		if c := (contestant{r.Program, r.Mode}); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func (rows Rows) allSizes() []int {
	var out []int
	for _, r := range rows {
		if !slices.Contains(out, r.Services) {
			out = append(out, r.Services)
		}
	}
	slices.Sort(out)
	return out
}

// column is one measure in the table; by, when set, is what it is divided by.
type column struct {
	title, measure string
	write          func(float64) string
}

func columns() []column {
	return []column{
		{"cold sync", Cold, seconds}, {"CPU", ColdCPU, seconds},
		{"restart", Restart, seconds}, {"CPU", RestartCPU, seconds},
		{"+1 endpoint", Endpoint, seconds}, {"CPU", EndpointCPU, seconds},
		{"+1 Service", Add, seconds}, {"CPU", AddCPU, seconds},
		{"-1 Service", Remove, seconds}, {"CPU", RemoveCPU, seconds},
		{"memory peak", Peak, megabytes}, {"at rest", Resident, megabytes},
	}
}

// Table is what was measured, medians of all rounds, in two blocks: programming the
// rules, and connecting through them.
func Table(rows Rows) string {
	var b strings.Builder
	b.WriteString("Programming. Times from the object (or the start of the process) to rules in force; CPU of the proxy and its helpers until at rest; medians.\n")
	w := tabwriter.NewWriter(&b, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "Services\tproxy\t")
	for _, c := range columns() {
		fmt.Fprint(w, c.title, "\t")
	}
	fmt.Fprintln(w)
	rows.each(func(c contestant, n int) {
		fmt.Fprintf(w, "%d\t%s\t", n, c)
		if stopped, ok := rows.Median(c.program, c.mode, n, Stopped); ok {
			fmt.Fprintf(w, "over %s: stopped\t\n", seconds(stopped))
			return
		}
		if _, ok := rows.Median(c.program, c.mode, n, Unavailable); ok {
			fmt.Fprint(w, "not available\t\n")
			return
		}
		for _, col := range columns() {
			fmt.Fprint(w, rows.cell(c, n, col.measure, col.write), "\t")
		}
		fmt.Fprintln(w)
	})
	_ = w.Flush()
	b.WriteString(connecting)
	w = tabwriter.NewWriter(&b, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Services\tproxy\tconnect p50\tto direct\tto translation alone\tto 1 Service\tfailed\tCPU of 10,000\tto direct\tdials failed in a full resync\tnot answering\t")
	rows.each(func(c contestant, n int) {
		if len(rows.Values(c.program, c.mode, n, Cold)) == 0 {
			return
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s of %s\t%s\t\n", n, c, rows.cell(c, n, Connect, micros),
			rows.ratio(c, n, Connect, Direct), rows.ratio(c, n, Connect, Floor), rows.ratio(c, n, Connect, One), rows.sum(c, n, Lost), rows.cell(c, n, ConnectCPU, seconds),
			rows.ratio(c, n, ConnectCPU, DirectCPU), rows.cell(c, n, Failed, count), rows.cell(c, n, Dials, count), rows.cell(c, n, Broken, count))
	})
	_ = w.Flush()
	return b.String()
}

// connecting explains the second table.
const connecting = `
Connecting. p50 of TCP connects to random Services. Ratios are of rounds, each with connects to the same endpoints directly
(no netfilter), to the same endpoints by one rule of the kernel and no proxy (translation alone), and to the same mode with 1
Service, whose endpoints are few. CPU of the client, the
kernel on the way, and the proxy. In mode userspace the proxy itself answers.
`

// each goes through sizes, and within a size through the contestants that were tried.
func (rows Rows) each(f func(c contestant, services int)) {
	for _, n := range rows.allSizes() {
		for _, c := range rows.contestants() {
			if slices.Contains(rows.Sizes(c.program, c.mode), n) {
				f(c, n)
			}
		}
	}
}

func (rows Rows) cell(c contestant, services int, measure string, write func(float64) string) string {
	v, ok := rows.Median(c.program, c.mode, services, measure)
	if ok {
		return write(v)
	}
	if stopped, ok := rows.Median(c.program, c.mode, services, Halted); ok && measure == Restart {
		return "over " + write(stopped)
	}
	return "-"
}

func (rows Rows) sum(c contestant, services int, measure string) string {
	all := rows.Values(c.program, c.mode, services, measure)
	if len(all) == 0 {
		return "-"
	}
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return count(sum)
}

func (rows Rows) ratio(c contestant, services int, measure, by string) string {
	v, ok := rows.Ratio(c.program, c.mode, services, measure, by)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func seconds(v float64) string {
	switch {
	case v >= 10:
		return fmt.Sprintf("%.0f s", v)
	case v >= 1:
		return fmt.Sprintf("%.1f s", v)
	case v >= 0.01:
		return fmt.Sprintf("%.0f ms", v*1000)
	}
	return fmt.Sprintf("%.1f ms", v*1000)
}

func megabytes(v float64) string { return fmt.Sprintf("%.0f MB", v/(1<<20)) }
func micros(v float64) string    { return fmt.Sprintf("%.1f us", v) }
func count(v float64) string     { return fmt.Sprintf("%.0f", v) }
