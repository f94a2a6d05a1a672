package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairway/proxy"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// deleteChunk is the number of flows deleted between two looks at the context.
const deleteChunk = 256

// ctnetlink attributes (linux/netfilter/nfnetlink_conntrack.h).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaProtoNum   = 1
	ctaProtoSrc   = 2
	ctaProtoDst   = 3
	nfgenmsgLen   = 4
	ipsDstNAT     = 1 << 5 // IPS_DST_NAT, of the status
)

// DeleteFlows makes conntrack forget UDP flows in the current network namespace and
// returns how many. A flow that ended meanwhile is no error.
func DeleteFlows(ctx context.Context, flows []proxy.Flow) (int, error) {
	n4, err4 := DeleteFlowsOf(ctx, flows, false)
	n6, err6 := DeleteFlowsOf(ctx, flows, true)
	return n4 + n6, errors.Join(err4, err6)
}

// DeleteFlowsOf is DeleteFlows for one family. The table is read once as a stream, so its
// size costs time but no memory.
func DeleteFlowsOf(ctx context.Context, flows []proxy.Flow, v6 bool) (int, error) {
	local, err := LocalAddrs()
	if err != nil {
		return 0, err
	}
	m := newFlowMatcher(flows, local, v6)
	if len(m.keep)+len(m.within) == 0 {
		return 0, nil
	}
	family := uint8(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	return forget(ctx, 0, family, m.stale)
}

// flowMatcher finds the flows to delete: by original destination, less those answered
// from a kept endpoint; and in ranges, whatever else was translated.
type flowMatcher struct {
	keep   map[netip.AddrPort][]netip.AddrPort
	within []netip.Prefix
}

// newFlowMatcher takes the last Flow of a destination for the one that counts: changes may
// have come faster than they were worked off.
func newFlowMatcher(flows []proxy.Flow, local []netip.Addr, v6 bool) flowMatcher {
	m := flowMatcher{keep: map[netip.AddrPort][]netip.AddrPort{}}
	ports := map[uint16][]netip.AddrPort{} // NodePorts
	for _, f := range flows {
		switch {
		case f.Within.IsValid():
			m.within = append(m.within, f.Within) // no address is of the other family
		case f.Dst.Addr().Is6() != v6:
		case f.Dst.Addr().IsUnspecified():
			ports[f.Dst.Port()] = f.Keep
		default:
			m.keep[f.Dst] = f.Keep
		}
	}
	for port, keep := range ports {
		for _, a := range local {
			at := netip.AddrPortFrom(a, port)
			if _, named := m.keep[at]; a.Is6() == v6 && !named {
				m.keep[at] = keep
			}
		}
	}
	return m
}

// forget deletes the flows of a family, AF_UNSPEC for all, of which the listed attributes
// are stale, in the network namespace of a descriptor, 0 for the current one.
func forget(ctx context.Context, ns int, family uint8, stale func(attrs []byte) bool) (int, error) {
	n, err := forgetIn(ctx, ns, family, stale)
	if err != nil {
		return n, fmt.Errorf("conntrack: %w", err)
	}
	return n, nil
}

func forgetIn(ctx context.Context, ns int, family uint8, stale func(attrs []byte) bool) (int, error) {
	var sockets map[int]*nl.SocketHandle
	if ns != 0 {
		s, err := nl.GetNetlinkSocketAt(netns.NsHandle(ns), netns.None(), unix.NETLINK_NETFILTER)
		if err != nil {
			return 0, err
		}
		defer s.Close()
		sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: s}}
	}
	request := func(cmd, flags int, family uint8) *nl.NetlinkRequest {
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|cmd, flags)
		req.Sockets = sockets
		req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
		return req
	}
	var found []rawFlow
	// An interrupted dump may have missed flows; a second one sees them.
	for try := range 3 {
		list, err := findFlows(request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, family), stale)
		found = append(found, list...)
		if err == nil {
			break
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == 2 {
			return 0, err
		}
	}
	deleted := 0
	for chunk := range slices.Chunk(found, deleteChunk) {
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
		for _, f := range chunk {
			req := request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, f.family)
			req.AddRawData(f.attrs)
			_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
			switch {
			case err == nil:
				deleted++
			case !errors.Is(err, unix.ENOENT):
				return deleted, err
			}
		}
	}
	return deleted, nil
}

// rawFlow is a flow in the attributes that name it to the kernel.
type rawFlow struct {
	family uint8
	attrs  []byte
}

func findFlows(req *nl.NetlinkRequest, stale func(attrs []byte) bool) ([]rawFlow, error) {
	var found []rawFlow
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if len(msg) > nfgenmsgLen && stale(msg[nfgenmsgLen:]) {
			found = append(found, rawFlow{msg[0], slices.Clone(msg[nfgenmsgLen:])})
		}
		return true
	})
	return found, err
}

func (m flowMatcher) stale(attrs []byte) bool {
	f := readFlow(attrs)
	if f.orig.proto != unix.IPPROTO_UDP {
		return false
	}
	if keep, ours := m.keep[f.orig.dst]; ours {
		return !slices.Contains(keep, f.reply.src)
	}
	return f.reply.src != f.orig.dst && slices.ContainsFunc(m.within, func(r netip.Prefix) bool { return r.Contains(f.orig.dst.Addr()) })
}

// flow is what is read of a flow.
type flow struct {
	orig, reply tuple
	status      uint32
}

func readFlow(attrs []byte) flow {
	var f flow
	eachAttr(attrs, func(kind uint16, value []byte) {
		switch {
		case kind == ctaTupleOrig:
			f.orig = readTuple(value)
		case kind == ctaTupleReply:
			f.reply = readTuple(value)
		case kind == ctaStatus && len(value) >= 4:
			f.status = binary.BigEndian.Uint32(value)
		}
	})
	return f
}

// tuple is one direction of a flow.
type tuple struct {
	proto    uint8
	src, dst netip.AddrPort
}

func readTuple(attrs []byte) tuple {
	var t tuple
	var src, dst netip.Addr
	var from, to uint16
	eachAttr(attrs, func(kind uint16, value []byte) {
		switch kind {
		case ctaTupleIP: // inside, odd numbers are sources and even ones destinations, of either family
			eachAttr(value, func(kind uint16, value []byte) {
				a, _ := netip.AddrFromSlice(value)
				if kind%2 == 1 {
					src = a
				} else {
					dst = a
				}
			})
		case ctaTupleProto:
			eachAttr(value, func(kind uint16, value []byte) {
				switch {
				case kind == ctaProtoNum && len(value) >= 1:
					t.proto = value[0]
				case kind == ctaProtoSrc && len(value) >= 2:
					from = binary.BigEndian.Uint16(value)
				case kind == ctaProtoDst && len(value) >= 2:
					to = binary.BigEndian.Uint16(value)
				}
			})
		}
	})
	t.src, t.dst = netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to)
	return t
}

// eachAttr walks netlink attributes: length and type in the machine's order, values
// padded to four bytes. The type's two highest bits are flags.
func eachAttr(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		kind := binary.NativeEndian.Uint16(b[2:]) & 0x3fff
		if size < unix.SizeofNlAttr || size > len(b) {
			return
		}
		f(kind, b[unix.SizeofNlAttr:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}
