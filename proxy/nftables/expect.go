package nftables

import (
	"hash/maphash"
)

// Expectation knows every element of a Program by a hash of 64 bits, so that a listing
// of the kernel need not hold what is as it should be: two tables of 200,000 elements
// would be most of this program's memory. Two of a million elements share a hash once in
// ten million listings; such a pair hides a fault in one of them until the next.
type Expectation struct {
	seed maphash.Seed
	met  map[uint64]bool
	buf  []byte
}

// Expect makes the expectation of p's elements (none when p is nil).
func Expect(p *Program) *Expectation {
	x := &Expectation{seed: maphash.MakeSeed(), met: map[uint64]bool{}}
	if p != nil {
		x.met = make(map[uint64]bool, 24*len(p.parts)) // ten endpoints, usually
	}
	p.each(func(part *Part) {
		for _, e := range part.Elems() {
			x.met[x.hash(e)] = false
		}
	})
	return x
}

func (x *Expectation) hash(e Elem) uint64 {
	head := byte(e.Kind) << 1
	if e.V6 {
		head |= 1
	}
	x.buf = append(x.buf[:0], head, byte(len(e.Key)), byte(len(e.Data)))
	x.buf = append(append(append(x.buf, e.Key...), e.Data...), e.Comment...)
	return maphash.Bytes(x.seed, x.buf)
}

// Meet tells whether e is expected, and notes that it was met.
func (x *Expectation) Meet(e Elem) bool {
	h := x.hash(e)
	_, ok := x.met[h]
	if ok {
		x.met[h] = true
	}
	return ok
}

// has tells whether e was met.
func (x *Expectation) has(e Elem) bool { return x != nil && x.met[x.hash(e)] }
