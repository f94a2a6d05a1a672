package report

import (
	"fmt"
	"strings"
)

// bar is one thing promised, and how it came out. A bar decides nothing but its line.
type bar struct {
	says     string
	measured string
	verdict  string
}

const (
	met     = "met"
	missed  = "MISSED"
	unknown = "not measured"
)

// atMost compares a figure with its bar.
func atMost(says string, v, limit float64, ok bool, measured string) bar {
	switch {
	case !ok:
		return bar{says, "", unknown}
	case v <= limit:
		return bar{says, measured, met}
	}
	return bar{says, measured, missed}
}

// Bars are the promises of the proxy, each with what this run has measured.
func Bars(rows Rows) string {
	var b strings.Builder
	b.WriteString("Bars\n")
	for _, list := range [][]bar{rows.loading(), rows.changing(), rows.remembering(), rows.connecting()} {
		for _, x := range list {
			fmt.Fprintf(&b, "  %-12s  %s", x.verdict, x.says)
			if x.measured != "" {
				fmt.Fprintf(&b, ": %s", x.measured)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// shared is the largest size at which both programs have a measure in a mode.
func (rows Rows) shared(mode, measure string) int {
	best := 0
	for _, n := range rows.Sizes(KubeProxy, mode) {
		_, theirs := rows.Median(KubeProxy, mode, n, measure)
		_, ours := rows.Median(Fairway, mode, n, measure)
		if ours && theirs {
			best = max(best, n)
		}
	}
	return best
}

// against compares with kube-proxy in the same mode at the largest size both finish.
func (rows Rows) against(what, mode, measure string, share float64, write func(float64) string) bar {
	says := fmt.Sprintf("%s, %s: at most %s of kube-proxy's at the largest size both finish", what, mode, part(share))
	n := rows.shared(mode, measure)
	ours, ok := rows.Median(Fairway, mode, n, measure)
	theirs, _ := rows.Median(KubeProxy, mode, n, measure)
	if !ok || theirs == 0 {
		return bar{says, "", unknown}
	}
	return atMost(says, ours/theirs, share, true, fmt.Sprintf("%s against %s at %d Services, %.3f", write(ours), write(theirs), n, ours/theirs))
}

func part(share float64) string { return fmt.Sprintf("1/%.0f", 1/share) }

func (rows Rows) within(what string, services int, measure string, limit float64) bar {
	v, ok := rows.Median(Fairway, "nftables", services, measure)
	return atMost(fmt.Sprintf("%s at %d Services: at most %s", what, services, seconds(limit)), v, limit, ok, seconds(v))
}

func (rows Rows) loading() []bar {
	return []bar{
		rows.against("cold sync", "nftables", Cold, 1.0/10, seconds),
		rows.within("cold sync, nftables,", 10000, Cold, 2),
		rows.within("cold sync, nftables,", 30000, Cold, 6),
	}
}

func (rows Rows) changing() []bar {
	return []bar{
		rows.within("+1 endpoint, nftables,", 10000, Endpoint, 0.050),
		rows.against("+1 endpoint, processor", "nftables", EndpointCPU, 1.0/10, seconds),
	}
}

func (rows Rows) remembering() []bar {
	var out []bar
	for _, mode := range []string{"nftables", "iptables-legacy", "iptables-nft"} {
		if rows.shared(mode, Resident) == 0 && mode != "nftables" {
			continue
		}
		out = append(out, rows.against("memory at rest", mode, Resident, 1.0/2, megabytes), rows.against("memory peak", mode, Peak, 1.0/2, megabytes))
	}
	return out
}

// perHost compares what a mode adds to a direct connect in many Services with what it does
// in one: many have more endpoints, and hosts cost a direct connect too.
func (rows Rows) perHost(mode string, services int, limit float64) bar {
	says := fmt.Sprintf("connect p50 by direct to the same endpoints, %s, %d Services: at most %.2f of the same with 1 Service", mode, services, limit)
	all, ok := rows.Ratio(Fairway, mode, services, Connect, Direct)
	one, okOne := rows.Ratio(Fairway, mode, services, One, DirectOne)
	if !ok || !okOne {
		return bar{says, "", unknown}
	}
	return atMost(says, all/one, limit, true, fmt.Sprintf("%.2f against %.2f, %.3f", all, one, all/one))
}

func (rows Rows) connecting() []bar {
	const n = 30000
	ratio := func(mode, by, than string, limit float64) bar {
		v, ok := rows.Ratio(Fairway, mode, n, Connect, by)
		return atMost(fmt.Sprintf("connect p50, %s, %d Services: at most %.2f of %s", mode, n, limit, than), v, limit, ok, fmt.Sprintf("%.3f", v))
	}
	return []bar{
		ratio("nftables", Direct, "direct", 1.25),
		ratio("nftables", Floor, "the kernel's translation alone", 1.25),
		ratio("nftables", One, "the same mode with 1 Service", 1.05),
		rows.perHost("nftables", n, 1.05),
		ratio("ebpf", Direct, "direct", 1.05),
	}
}
