package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The picture's measures, in pixels.
const (
	chartWidth, chartHeight = 980, 560
	left, right             = 80, 280
	top, bottom             = 70, 60
	plotWidth               = chartWidth - left - right
	plotHeight              = chartHeight - top - bottom
)

// line is one contestant's cold syncs.
type line struct {
	contestant
	points  [][2]float64 // Services, seconds
	stopped bool         // the last point is where it was stopped, not where it ended
}

// Chart draws the time of a cold sync over the number of Services, both axes
// logarithmic: the picture of "iptables against IPVS", with every mode measured. A mode
// that was stopped ends in an arrow upwards.
func Chart(rows Rows) string {
	lines := rows.lines()
	a := axes{x: [2]float64{500, 30000}, y: [2]float64{0.1, 60}}
	for _, l := range lines {
		for _, p := range l.points {
			a.x = [2]float64{min(a.x[0], p[0]), max(a.x[1], p[0])}
			a.y = [2]float64{min(a.y[0], p[1]), max(a.y[1], p[1])}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n",
		chartWidth, chartHeight, chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, chartHeight)
	text(&b, left, 28, "start", `font-size="18" font-weight="bold"`, "Cold sync: from the start of the process to rules in force")
	text(&b, left, 48, "start", `fill="#555555"`, fmt.Sprintf("%d endpoints a Service; both axes logarithmic; an arrow is a mode stopped there, unfinished", rows.endpoints()))
	a.grid(&b)
	labels := make([]label, 0, len(lines))
	for i, l := range lines {
		labels = append(labels, a.draw(&b, l, i))
	}
	spread(labels)
	for _, l := range labels {
		text(&b, left+plotWidth+12, l.y+4, "start", fmt.Sprintf(`fill="%s"`, l.colour), l.text)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (rows Rows) endpoints() int {
	if len(rows) == 0 {
		return 0
	}
	return rows[0].Endpoints
}

func (rows Rows) lines() []line {
	var out []line
	for _, c := range rows.contestants() {
		l := line{contestant: c}
		for _, n := range rows.Sizes(c.program, c.mode) {
			if v, ok := rows.Median(c.program, c.mode, n, Cold); ok {
				l.points = append(l.points, [2]float64{float64(n), v})
			} else if v, ok := rows.Median(c.program, c.mode, n, Stopped); ok {
				l.points, l.stopped = append(l.points, [2]float64{float64(n), v}), true
				break
			}
		}
		if len(l.points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// axes are the values at the plot's edges.
type axes struct{ x, y [2]float64 }

func at(v float64, ends [2]float64) float64 {
	return (math.Log(v) - math.Log(ends[0])) / (math.Log(ends[1]) - math.Log(ends[0]))
}

func (a axes) place(p [2]float64) (x, y float64) {
	return left + at(p[0], a.x)*plotWidth, top + (1-at(p[1], a.y))*plotHeight
}

func (a axes) grid(b *strings.Builder) {
	for _, n := range []float64{500, 1000, 2000, 5000, 10000, 30000} {
		if n < a.x[0] || n > a.x[1] {
			continue
		}
		x, _ := a.place([2]float64{n, a.y[0]})
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e0e0e0"/>`+"\n", x, top, x, top+plotHeight)
		text(b, x, top+plotHeight+20, "middle", `fill="#333333"`, thousands(int(n)))
	}
	for _, s := range []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60} {
		if s < a.y[0] || s > a.y[1] {
			continue
		}
		_, y := a.place([2]float64{a.x[0], s})
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e0e0e0"/>`+"\n", left, y, left+plotWidth, y)
		text(b, left-8, y+4, "end", `fill="#333333"`, seconds(s))
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888888"/>`+"\n", left, top, plotWidth, plotHeight)
	text(b, left+plotWidth/2, chartHeight-16, "middle", `fill="#333333"`, "Services")
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// label is a line's name at its end.
type label struct {
	y            float64
	text, colour string
}

// draw is a line in its mode's colour: Fairway's are solid, kube-proxy's dashed.
func (a axes) draw(b *strings.Builder, l line, i int) label {
	dash := ""
	if l.program == KubeProxy {
		dash = ` stroke-dasharray="7 4"`
	}
	var path []string
	var x, y float64
	colour := colourOf(l.mode, i)
	for _, p := range l.points {
		x, y = a.place(p)
		path = append(path, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.2"%s/>`+"\n", strings.Join(path, " "), colour, dash)
	for k, p := range l.points {
		px, py := a.place(p)
		if l.stopped && k == len(l.points)-1 {
			fmt.Fprintf(b, `<path d="M%.1f %.1f l-6 11 h12 z" fill="%s"/>`+"\n", px, py-6, colour)
			continue
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.4" fill="%s"/>`+"\n", px, py, colour)
	}
	name := l.String()
	if l.stopped {
		name += " (stopped)"
	}
	return label{y, name, colour}
}

func colourOf(mode string, i int) string {
	switch mode {
	case "nftables":
		return "#1565c0"
	case "iptables-legacy":
		return "#c62828"
	case "iptables-nft":
		return "#ef6c00"
	case "userspace":
		return "#6a1b9a"
	case "ebpf":
		return "#2e7d32"
	case "ipvs":
		return "#00838f"
	}
	return []string{"#455a64", "#795548", "#9e9d24"}[i%3]
}

// spread moves names apart that would lie on each other.
func spread(labels []label) {
	order := make([]*label, 0, len(labels))
	for i := range labels {
		order = append(order, &labels[i])
	}
	slices.SortFunc(order, func(a, b *label) int { return int(10 * (a.y - b.y)) })
	for i := 1; i < len(order); i++ {
		order[i].y = max(order[i].y, order[i-1].y+17)
	}
}

func text(b *strings.Builder, x, y float64, anchor, style, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
}
