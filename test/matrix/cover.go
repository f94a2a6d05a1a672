package matrix

// cover makes rows, one value per dimension, so that every combination of values of any
// `strength` dimensions that is possible at all stands in some row. It is greedy and
// always gives the same rows. possible is asked of rows that are partly filled: -1 is a
// value not chosen yet, and the answer is no only if no choice can help.
func cover(sizes []int, strength int, possible func(row []int) bool) [][]int {
	c := &covering{sizes: sizes, possible: possible, byDim: make([][]int, len(sizes))}
	c.combine(nil, 0, strength)
	var rows [][]int
	for k := range c.combos {
		for at := range c.combos[k].open {
			if !c.combos[k].open[at] {
				continue
			}
			if row := c.row(k, at); row != nil {
				rows = append(rows, row)
				c.done(row)
			}
			c.combos[k].open[at] = false // in the row, or impossible
		}
	}
	return rows
}

type covering struct {
	sizes    []int
	possible func([]int) bool
	combos   []combo
	byDim    [][]int // combos a dimension is in
}

// combo is some dimensions, and which combinations of their values are still open.
type combo struct {
	dims []int
	open []bool
}

func (c *covering) combine(dims []int, from, strength int) {
	if len(dims) == strength {
		n := 1
		for _, d := range dims {
			n *= c.sizes[d]
			c.byDim[d] = append(c.byDim[d], len(c.combos))
		}
		open := make([]bool, n)
		for i := range open {
			open[i] = true
		}
		c.combos = append(c.combos, combo{append([]int(nil), dims...), open})
		return
	}
	for d := from; d < len(c.sizes); d++ {
		c.combine(append(dims, d), d+1, strength)
	}
}

// index is where a row's values are in a combo, -1 when one is not chosen.
func (c *covering) index(k combo, row []int) int {
	at := 0
	for _, d := range k.dims {
		if row[d] < 0 {
			return -1
		}
		at = at*c.sizes[d] + row[d]
	}
	return at
}

// row completes one open combination, nil when that is impossible.
func (c *covering) row(k, at int) []int {
	row := make([]int, len(c.sizes))
	for d := range row {
		row[d] = -1
	}
	dims := c.combos[k].dims
	for i := len(dims) - 1; i >= 0; i-- {
		row[dims[i]] = at % c.sizes[dims[i]]
		at /= c.sizes[dims[i]]
	}
	if !c.possible(row) || !c.fill(row, 0) {
		return nil
	}
	return row
}

// fill chooses values for the dimensions from d on, each time the one that covers most,
// and goes back where a choice leads nowhere.
func (c *covering) fill(row []int, d int) bool {
	for d < len(row) && row[d] >= 0 {
		d++
	}
	if d == len(row) {
		return true
	}
	tried := make([]bool, c.sizes[d])
	for range tried {
		best, most := -1, -1
		for v := range tried {
			if tried[v] {
				continue
			}
			row[d] = v
			if gain := c.gain(row, d); gain > most && c.possible(row) {
				best, most = v, gain
			}
		}
		if best < 0 {
			break
		}
		tried[best], row[d] = true, best
		if c.fill(row, d+1) {
			return true
		}
	}
	row[d] = -1
	return false
}

// gain counts the open combinations that the value of dimension d adds to the row.
func (c *covering) gain(row []int, d int) int {
	n := 0
	for _, k := range c.byDim[d] {
		if at := c.index(c.combos[k], row); at >= 0 && c.combos[k].open[at] {
			n++
		}
	}
	return n
}

func (c *covering) done(row []int) {
	for _, k := range c.combos {
		k.open[c.index(k, row)] = false
	}
}
