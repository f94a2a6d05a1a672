package lb

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Candidate is a node that could answer for an address; Blocked says why it may not,
// empty when it may.
type Candidate struct {
	Node    string
	Blocked string
}

// Why is one node's part in the choice of an owner.
type Why struct {
	Node   string
	Reason string
}

// Owner chooses the node that answers for addr: the highest rendezvous hash among the
// candidates not blocked. It depends on nothing but its arguments, so nodes that see
// the same candidates agree without talking, and a node that leaves moves only its own
// addresses. The node is empty when all are blocked. Whys are in node order.
func Owner(addr netip.Addr, candidates []Candidate) (string, []Why) {
	node := choose(addr, candidates)
	whys := make([]Why, 0, len(candidates))
	for _, c := range candidates {
		w := Why{Node: c.Node, Reason: c.Blocked}
		switch {
		case c.Node == node && c.Blocked == "":
			w.Reason = "owner: highest hash of node and address"
		case c.Blocked == "":
			w.Reason = fmt.Sprintf("eligible, but node %s has the higher hash", node)
		}
		whys = append(whys, w)
	}
	slices.SortFunc(whys, func(a, b Why) int { return cmp.Compare(a.Node, b.Node) })
	return node, whys
}

// choose is Owner without the reasons, which cost more than the choice.
func choose(addr netip.Addr, candidates []Candidate) string {
	node, score := "", uint64(0)
	for _, c := range candidates {
		if c.Blocked != "" {
			continue
		}
		if s := rendezvous(c.Node, addr); node == "" || s > score || s == score && c.Node < node {
			node, score = c.Node, s
		}
	}
	return node
}

// rendezvous is FNV-1a over node and address, mixed once more because FNV's high bits
// hardly depend on the last bytes, which is where neighbouring addresses differ.
func rendezvous(node string, addr netip.Addr) uint64 {
	h := fnv.New64a()
	b := addr.As16()
	_, _ = h.Write([]byte(node))
	_, _ = h.Write([]byte{'#'})
	_, _ = h.Write(b[:])
	x := h.Sum64()
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
