package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// printTable is the closing table: every spec with its end and its seconds,
// then by name what was not run and why, then one line of totals.
func printTable(out io.Writer, results []Result, notRun []Spec, wall time.Duration) {
	fmt.Fprintf(out, "\n%-9s %7s  %-10s  %s\n", "RESULT", "SECONDS", "STAGE", "SPEC")
	for _, r := range results {
		fmt.Fprintf(out, "%-9s %7.1f  %-10s  %s\n", r.State, r.Seconds, r.Spec.Stage, r.Spec.Short())
		if r.State == Skipped || r.State == Unfinished {
			fmt.Fprintf(out, "%31s%s\n", "", firstLines(r.Message, 1))
		}
	}
	reason := ""
	byReason := func(a, b Spec) int { return strings.Compare(a.Reason, b.Reason) }
	for _, s := range slices.SortedStableFunc(slices.Values(notRun), byReason) {
		if s.Reason != reason {
			reason = s.Reason
			fmt.Fprintf(out, "\nnot run (%s):\n", reason)
		}
		fmt.Fprintf(out, "  %s\n", s.Short())
	}
	n := count(results)
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped, %d unfinished in %.0f s; %d not run\n",
		n[Passed], n[Failed], n[Skipped], n[Unfinished], wall.Seconds(), len(notRun))
}

func count(results []Result) map[State]int {
	n := map[State]int{}
	for _, r := range results {
		n[r.State]++
	}
	return n
}

// verdict is nil only when specs ran and every one chosen ended well: an empty
// run proves nothing.
func verdict(results []Result) error {
	n := count(results)
	switch {
	case n[Failed] > 0:
		return fmt.Errorf("%d specs failed", n[Failed])
	case n[Unfinished] > 0:
		return fmt.Errorf("%d specs did not finish", n[Unfinished])
	case n[Passed] == 0:
		return errors.New("no spec ran")
	}
	return nil
}
