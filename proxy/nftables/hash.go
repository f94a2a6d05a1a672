package nftables

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// slot is the index below n that the kernel's jhash gives a source address.
func slot(a netip.Addr, n uint32) uint32 {
	return uint32(uint64(jhash(a.AsSlice(), HashSeed)) * uint64(n) >> 32)
}

// jhash is Bob Jenkins' lookup3 as in Linux' include/linux/jhash.h, for keys whose length
// is a multiple of four. The kernel reads the last twelve bytes in little-endian order
// and those before in the machine's own.
func jhash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	word := func(i int) uint32 {
		if 4*i >= len(key) {
			return 0
		}
		return binary.LittleEndian.Uint32(key[4*i:])
	}
	for len(key) > 12 {
		order := binary.NativeEndian
		a, b, c = a+order.Uint32(key), b+order.Uint32(key[4:]), c+order.Uint32(key[8:])
		for i, n := range [6]int{4, 6, 8, 16, 19, 4} {
			switch i % 3 {
			case 0:
				a = (a - c) ^ bits.RotateLeft32(c, n)
				c += b
			case 1:
				b = (b - a) ^ bits.RotateLeft32(a, n)
				a += c
			default:
				c = (c - b) ^ bits.RotateLeft32(b, n)
				b += a
			}
		}
		key = key[12:]
	}
	a, b, c = a+word(0), b+word(1), c+word(2)
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
