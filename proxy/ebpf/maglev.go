package ebpf

import (
	"crypto/sha256"
	"encoding/binary"

	"fairway/proxy"
)

// The table sizes are primes, so that every step walks through a whole table.
const (
	smallTable = 1021  // one element of the map tables
	largeTable = 16381 // sixteen
)

// tableSize keeps the share of each endpoint even to about a hundredth, which takes some
// hundred places each; beyond a few hundred endpoints it becomes coarser.
func tableSize(endpoints int) int {
	if endpoints <= 32 {
		return smallTable
	}
	return largeTable
}

// maglev fills a lookup table with indexes into list (Eisenbud et al., Maglev, NSDI 2016,
// 3.4). It depends on the endpoints' addresses alone: every node with the same list has
// the same table, and an endpoint that comes or goes moves few places of the others.
func maglev(list []proxy.Endpoint, size int) []uint16 {
	offset, step := make([]int, len(list)), make([]int, len(list))
	for i, e := range list {
		b, _ := e.Addr.MarshalBinary()
		sum := sha256.Sum256(b)
		offset[i] = int(binary.BigEndian.Uint64(sum[:8]) % uint64(size))
		step[i] = int(binary.BigEndian.Uint64(sum[8:16])%uint64(size-1)) + 1
	}
	const free = 0xffff
	table := make([]uint16, size)
	for i := range table {
		table[i] = free
	}
	for filled := 0; ; {
		for i := range list {
			at := offset[i]
			for table[at] != free {
				at = (at + step[i]) % size
			}
			table[at] = uint16(i)
			offset[i] = (at + step[i]) % size
			if filled++; filled == size {
				return table
			}
		}
	}
}
