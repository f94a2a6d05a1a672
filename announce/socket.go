package announce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// openPacket opens an AF_PACKET socket on one interface for one EtherType. The filter
// is in place before the socket is bound, so no other frame ever queues.
func openPacket(index int, ether uint16, filter []bpf.Instruction) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if err := attach(fd, filter); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap(ether), Ifindex: index}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind packet socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "packet"), nil
}

func swap(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

func attach(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("assemble filter: %w", err)
	}
	prog := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		prog[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0]))}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fprog); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	return nil
}

// arpFilter lets only ARP requests through; the request of a gratuitous pair is one.
func arpFilter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 20, Size: 2}, // operation
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ARPRequest), SkipFalse: 1},
		bpf.RetConstant{Val: 128},
		bpf.RetConstant{Val: 0},
	}
}

// neighbourFilter lets only neighbour solicitations and advertisements through.
func neighbourFilter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: etherLen + 6, Size: 1}, // next header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: etherLen + 40, Size: 1}, // type
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ndSolicitation, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ndAdvertisement, SkipTrue: 1},
		bpf.RetConstant{Val: 512},
		bpf.RetConstant{Val: 0},
	}
}

// groups joins the solicited-node groups of addresses on one interface, so that the
// card and switches that watch MLD pass solicitations on.
type groups struct {
	fd    int
	index int
	joins map[netip.Addr]bool
}

func openGroups(index int) (*groups, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("group socket: %w", err)
	}
	return &groups{fd: fd, index: index, joins: map[netip.Addr]bool{}}, nil
}

// set joins and leaves until exactly the groups in want are joined.
func (g *groups) set(want map[netip.Addr]bool) error {
	var errs []error
	for a := range want {
		if !g.joins[a] {
			if err := g.option(unix.IPV6_JOIN_GROUP, a); err != nil {
				errs = append(errs, fmt.Errorf("join %s: %w", a, err))
				continue
			}
			g.joins[a] = true
		}
	}
	for a := range g.joins {
		if !want[a] {
			_ = g.option(unix.IPV6_LEAVE_GROUP, a)
			delete(g.joins, a)
		}
	}
	return errors.Join(errs...)
}

func (g *groups) option(opt int, a netip.Addr) error {
	return unix.SetsockoptIPv6Mreq(g.fd, unix.IPPROTO_IPV6, opt, &unix.IPv6Mreq{Multiaddr: a.As16(), Interface: uint32(g.index)})
}

func (g *groups) close() { _ = unix.Close(g.fd) }
