package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairway/proxy/iptables"
)

// counting is a hand that can tell the packets its rules met.
type counting interface {
	SaveCounters(context.Context) (string, error)
}

// Counters reads the flows of each Service port from the counters of its chain, outside
// the lock: a long listing must not hold up a change.
func (b *IPTables) Counters(ctx context.Context) ([]Count, error) {
	b.mu.Lock()
	program, families := b.last, slices.Clone(b.families)
	b.mu.Unlock()
	if program == nil {
		return nil, nil
	}
	var out []Count
	var errs []error
	for _, f := range families {
		hand, ok := f.hand.(counting)
		if !ok {
			continue
		}
		text, err := hand.SaveCounters(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", familyName(f.v6), err))
			continue
		}
		out = append(out, program.Counts(text, f.v6)...)
	}
	return out, errors.Join(errs...)
}

// ruleCounts remembers how many rules of a family there are and were written last.
type ruleCounts struct {
	of          *iptables.Program
	total, last map[string]int
}

// TableCounts tells how many rules stand in each table, and how many the last change of it
// wrote.
func (b *IPTables) TableCounts() []TableCount {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []TableCount
	for _, f := range b.families {
		if f.have == nil || b.last == nil {
			continue
		}
		if f.counts.of != b.last { // writing all rules out takes a moment
			f.counts.of, f.counts.total = b.last, b.last.RuleCounts(f.v6)
		}
		for _, table := range slices.Sorted(maps.Keys(f.counts.total)) {
			out = append(out, TableCount{Table: table, IPv6: f.v6, Total: f.counts.total[table], Last: f.counts.last[table]})
		}
	}
	return out
}

func (c *ruleCounts) written(input string) {
	for table, n := range iptables.Written(input) {
		c.last[table] += n
	}
}
