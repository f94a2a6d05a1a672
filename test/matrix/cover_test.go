package matrix

import "testing"

// TestCover: every possible pair and triple of values stands in some row, no row is
// impossible, and what cannot be is not asked for.
func TestCover(t *testing.T) {
	for _, strength := range []int{2, 3} {
		rows := cover(sizes(), strength, possible)
		c := &covering{sizes: sizes(), byDim: make([][]int, dimensions), possible: possible}
		c.combine(nil, 0, strength)
		for _, r := range rows {
			if !possible(r) {
				t.Errorf("impossible: %s", cellOf(r))
			}
			c.done(r)
		}
		missing := 0
		for _, k := range c.combos {
			for at, open := range k.open {
				if open {
					missing++
					if meets(k, at) {
						t.Errorf("values %d of dimensions %v meet in no row", at, k.dims)
					}
				}
			}
		}
		t.Logf("strength %d: %d rows, %d combinations impossible", strength, len(rows), missing)
	}
}

// meets tells by trying everything whether a combination is possible.
func meets(k combo, at int) bool {
	row := make([]int, dimensions)
	for d := range row {
		row[d] = -1
	}
	for i := len(k.dims) - 1; i >= 0; i-- {
		d := k.dims[i]
		row[d], at = at%sizes()[d], at/sizes()[d]
	}
	var try func(d int) bool
	try = func(d int) bool {
		for d < dimensions && row[d] >= 0 {
			d++
		}
		if !possible(row) || d == dimensions {
			return d == dimensions
		}
		for v := range sizes()[d] {
			if row[d] = v; try(d + 1) {
				return true
			}
		}
		row[d] = -1
		return false
	}
	return try(0)
}
