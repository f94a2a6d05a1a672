package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"fairway/proxy/nftables"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dumpBuffer is more than the kernel puts into one message of a dump. It goes by the
// size of the reads it has seen, and begins at the first element again for each
// message: with the usual 4 KB a set of 100,000 elements takes seconds.
const dumpBuffer = 64 << 10

// dumpElems reads the elements of a set.
func dumpElems(c *netlink.Conn, table string, set nftables.Set, add func(nftables.Elem)) error {
	var a attrs
	a.str(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	a.str(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	return dump(c, unix.NFT_MSG_GETSETELEM, set.V6, &a, func(msg []byte) { readElems(msg, set, add) })
}

// dump asks for a list and visits what each message of the answer holds.
func dump(c *netlink.Conn, typ uint16, v6 bool, a *attrs, visit func(msg []byte)) error {
	req, err := c.Send(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ), Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{family(v6), unix.NFNETLINK_V0, 0, 0}, a.b...),
	})
	if err != nil {
		return err
	}
	buf := make([]byte, dumpBuffer)
	for {
		n, err := receive(c, buf)
		if err != nil {
			return err
		}
		done, err := eachMessage(buf[:n], req.Header.Sequence, visit)
		if done || err != nil {
			return err
		}
	}
}

// receive reads one datagram.
func receive(c *netlink.Conn, buf []byte) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	var fail error
	err = raw.Read(func(fd uintptr) bool {
		n, _, fail = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		return !errors.Is(fail, unix.EAGAIN) && !errors.Is(fail, unix.EINTR)
	})
	return n, errors.Join(err, fail)
}

// eachMessage walks the netlink messages of a datagram that answer seq; done is true at
// the last one of the dump.
func eachMessage(b []byte, seq uint32, visit func([]byte)) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errors.New("netlink message is cut short")
		}
		typ, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		body := b[unix.NLMSG_HDRLEN:size]
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != seq:
		case flags&unix.NLM_F_DUMP_INTR != 0:
			return false, errChanged
		case typ == unix.NLMSG_DONE:
			return true, nil
		case typ == unix.NLMSG_ERROR && len(body) >= 4:
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case len(body) >= 4:
			visit(body[4:])
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// errChanged is a dump during which somebody wrote: its parts do not fit together.
var errChanged = errors.New("the ruleset changed while it was read")

func readElems(msg []byte, set nftables.Set, add func(nftables.Elem)) {
	eachAttr(msg, func(typ uint16, list []byte) {
		if typ == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			eachAttr(list, func(_ uint16, item []byte) { add(readElem(item, set)) })
		}
	})
}

func readElem(item []byte, set nftables.Set) nftables.Elem {
	e := nftables.Elem{V6: set.V6, Kind: set.Kind}
	end := ""
	eachAttr(item, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = readValue(v)
		case elemKeyEnd:
			end = readValue(v)
		case unix.NFTA_SET_ELEM_DATA:
			e.Data = readValue(v)
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = readComment(v)
		}
	})
	e.Key += end
	return e
}

// readValue reads nested data: bytes, or the chain of a goto. Any other verdict is
// printed, so that it differs from everything we write.
func readValue(b []byte) string {
	out := ""
	eachAttr(b, func(typ uint16, v []byte) {
		if typ == unix.NFTA_DATA_VALUE {
			out = string(v)
			return
		}
		code, chain := uint32(0), ""
		eachAttr(v, func(typ uint16, v []byte) {
			switch typ {
			case unix.NFTA_VERDICT_CODE:
				code = binary.BigEndian.Uint32(v)
			case unix.NFTA_VERDICT_CHAIN:
				chain = strings.TrimRight(string(v), "\x00")
			}
		})
		if out = chain; code != verdictGoto {
			out = fmt.Sprintf("verdict %d %s", int32(code), chain)
		}
	})
	return out
}

// readComment finds the comment in an element's userdata.
func readComment(b []byte) string {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == 0 {
			return strings.TrimRight(string(b[2:2+b[1]]), "\x00")
		}
		b = b[2+int(b[1]):]
	}
	return ""
}

// dial opens a netlink socket in the namespace.
func (k *NFTables) dial() (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: k.netns})
	if err != nil {
		return nil, fmt.Errorf("nftables netlink socket: %w", err)
	}
	// Without privileges the kernel gives less; the limit on Ops then still fits.
	_ = c.SetWriteBuffer(socketBuffer)
	_ = c.SetReadBuffer(socketBuffer)
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("nftables netlink socket: %w", err)
	}
	return c, nil
}
