package nftables

import (
	"hash/fnv"

	"fairway/proxy"
)

// maglevSize is the number of slots for n endpoints: a prime of at least twenty times
// as many, so that no endpoint gets a twentieth more than another, as far as a class
// has room. It changes rarely: when it does, most clients move.
func maglevSize(n int) int {
	for _, size := range []int{251, 1021, 4093} {
		if size >= 20*n {
			return size
		}
	}
	if n < 4093 {
		return 4093
	}
	return 65521
}

// maglev fills the slots with indexes of list as in "Maglev: A Fast and Reliable
// Software Network Load Balancer" (NSDI 2016, 3.4): every endpoint takes its next free
// preferred slot in turn. Equal lists give equal tables on all nodes, and an endpoint
// that goes leaves most slots of the others alone.
func maglev(list []proxy.Endpoint, size int) []int {
	slots := make([]int, size)
	for i := range slots {
		slots[i] = -1
	}
	next, skip := make([]int, len(list)), make([]int, len(list))
	for i, e := range list {
		h := fnv.New64a()
		key, _ := e.Addr.MarshalBinary()
		_, _ = h.Write(key)
		sum := mix(h.Sum64())
		next[i], skip[i] = int(uint32(sum)%uint32(size)), int(uint32(sum>>32)%uint32(size-1))+1
	}
	for filled := 0; ; {
		for i := range list {
			for slots[next[i]] >= 0 {
				next[i] = (next[i] + skip[i]) % size
			}
			slots[next[i]] = i
			if filled++; filled == size {
				return slots
			}
		}
	}
}

// mix spreads what FNV leaves alike in neighbouring addresses (the finalizer of
// MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// slots is how many indexes a list of endpoints takes, by the Service's scheduler.
func slotsOf(sp *proxy.ServicePort, list []proxy.Endpoint) int {
	if sp.Scheduler == proxy.Maglev && len(list) > 1 {
		return maglevSize(len(list))
	}
	return len(list)
}

// pickOf is how an index is come by, by the Service's scheduler.
func pickOf(sp *proxy.ServicePort) Pick {
	switch sp.Scheduler {
	case proxy.RoundRobin:
		return InTurn
	case proxy.SourceHash, proxy.Maglev:
		return BySource
	}
	return Randomly
}
