package dnsserver

import (
	"encoding/binary"
	"unsafe"

	"fairway/dns"

	"golang.org/x/sys/unix"
)

// batchSize is the number of datagrams one system call moves at most.
const batchSize = 32

// mmsghdr is struct mmsghdr of recvmmsg(2), which golang.org/x/sys lacks.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// batch holds the memory datagrams are read into or sent from. The kernel's structures
// point into it, so it must not be copied.
type batch struct {
	hdrs  [batchSize]mmsghdr
	iovs  [batchSize]unix.Iovec
	names [batchSize]unix.RawSockaddrInet6 // wide enough for IPv4 too
	oobs  [batchSize][oobSize]byte
	bufs  [batchSize][]byte
	n     int
}

// oobSize holds one IP_PKTINFO or IPV6_PKTINFO message.
const oobSize = 40

func newBatch(size int) *batch {
	b := &batch{}
	all := make([]byte, batchSize*size)
	for i := range b.hdrs {
		b.bufs[i] = all[i*size : (i+1)*size : (i+1)*size]
		b.iovs[i].Base = &b.bufs[i][0]
		b.hdrs[i].hdr.Iov = &b.iovs[i]
		b.hdrs[i].hdr.SetIovlen(1)
	}
	return b
}

// receive reads what has come, waiting for nothing; false when nothing has.
func (b *batch) receive(fd uintptr, wildcard bool) bool {
	for i := range b.hdrs {
		h := &b.hdrs[i].hdr
		h.Name, h.Namelen = nameOf(&b.names[i]), unix.SizeofSockaddrInet6
		if wildcard {
			h.Control = &b.oobs[i][0]
			h.SetControllen(oobSize)
		}
		b.iovs[i].SetLen(len(b.bufs[i]))
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.hdrs)), batchSize, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			b.n = int(n)
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			b.n = 0
			return false
		}
		b.n = 0 // as ECONNREFUSED, which an earlier reply can bring: read on
		return true
	}
}

// datagram is the i-th received; nil when it was longer than its buffer.
func (b *batch) datagram(i int) []byte {
	if b.hdrs[i].hdr.Flags&unix.MSG_TRUNC != 0 {
		return nil
	}
	return b.bufs[i][:b.hdrs[i].n]
}

// replyTo adds the first n bytes of the next buffer as the reply to the i-th datagram
// of from, to leave from the address that was asked.
func (b *batch) replyTo(from *batch, i, n int) {
	h, in := &b.hdrs[b.n].hdr, &from.hdrs[i].hdr
	h.Name, h.Namelen = in.Name, in.Namelen
	h.Control, h.Controllen = in.Control, in.Controllen
	if h.Controllen > 0 {
		anyInterface(from.oobs[i][:])
	} else {
		h.Control = nil
	}
	b.iovs[b.n].SetLen(n)
	b.n++
}

// anyInterface makes the control message of a datagram one for its reply: the source is
// given, the interface is left to the routing table, since replies need not leave where
// queries come in.
func anyInterface(oob []byte) {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	data := oob[unix.SizeofCmsghdr:]
	switch {
	case h.Level == unix.SOL_IP && h.Type == unix.IP_PKTINFO:
		binary.NativeEndian.PutUint32(data, 0)
	case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_PKTINFO && (data[0] != 0xfe || data[1]&0xc0 != 0x80):
		binary.NativeEndian.PutUint32(data[16:], 0) // a link-local address needs its interface
	}
}

// send sends from the first-th on and returns how many are dealt with; less than all
// means that the socket's buffer is full. A reply that cannot be sent is dropped, as the
// network might.
func (b *batch) send(fd uintptr, first int) int {
	for first < b.n {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&b.hdrs[first])), uintptr(b.n-first), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			first += int(n)
		case unix.EINTR:
		case unix.EAGAIN:
			return first
		default:
			first++
		}
	}
	return first
}

// reserve is the buffer the next reply is written into.
func (b *batch) reserve() []byte { return b.bufs[b.n][:0:dns.MaxUDP] }

// send sends one message; EAGAIN means that the socket's buffer is full.
func (m *mmsghdr) send(fd uintptr) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_DONTWAIT)
		if errno != unix.EINTR {
			return errno
		}
	}
}

func nameOf(a *unix.RawSockaddrInet6) *byte { return (*byte)(unsafe.Pointer(a)) }
