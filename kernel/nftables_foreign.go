package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sighting is what is known of others' writing. The kernel tells members of a multicast
// group each change of each table, with the socket it came from: what touches our tables
// and does not come from our socket is somebody's. While a large Change of ours is made
// the group is left, for the kernel would tell each of its elements; then, and where the
// group cannot be joined, transactions are counted instead (NFT_MSG_GETGEN), and what is
// not ours may have touched our tables.
type sighting struct {
	group      *netlink.Conn
	away       bool // group is left for now
	unsure     bool // somebody may have touched our tables
	generation uint32
	commits    uint32
	own        []uint32 // port ids of our sockets, the last few
}

// nftablesGroup is NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h.
const nftablesGroup = 7

// eventBuffer is what the kernel keeps for us until the next look.
const eventBuffer = 1 << 20

// Foreign tells whether anybody else has touched our tables, or may have, since the last
// call, and whether one of them that ought to be there is gone, as after nft flush
// ruleset. It costs microseconds while nobody has.
func (k *NFTables) Foreign(v4, v6 bool) (wrote, gone bool, err error) {
	if k.seen.group == nil {
		if err := k.attend(); err != nil {
			return false, false, err
		}
	}
	wrote, err = k.heard()
	if err != nil || !wrote {
		return false, false, err
	}
	gone, err = k.gone(v4, v6)
	return true, gone, err
}

// attend begins to listen; what was before is not known.
func (k *NFTables) attend() error {
	k.seen.unsure = true
	if k.seen.group == nil {
		c, err := k.dial()
		if err != nil {
			return err
		}
		_ = c.SetReadBuffer(eventBuffer)
		k.seen.group, k.seen.away = c, true
	}
	return k.rejoin()
}

// rejoin listens again after leave. What was written in between has to be ours.
func (k *NFTables) rejoin() error {
	if k.seen.group == nil || !k.seen.away {
		return nil
	}
	err := k.seen.group.JoinGroup(nftablesGroup)
	if err := k.count(); err != nil {
		return err
	}
	k.seen.away = err != nil
	return nil
}

// leave listens no more until rejoin.
func (k *NFTables) leave() error {
	if k.seen.group == nil || k.seen.away {
		return nil
	}
	if err := k.hear(); err != nil {
		return err
	}
	if err := k.count(); err != nil {
		return err
	}
	k.seen.unsure = k.seen.group.LeaveGroup(nftablesGroup) != nil || k.seen.unsure
	k.seen.away = true
	return nil
}

// count compares the kernel's number of transactions with ours since the last count.
func (k *NFTables) count() error {
	generation, err := k.generation()
	if err != nil {
		return err
	}
	if k.seen.away && generation-k.seen.generation != k.commits-k.seen.commits {
		k.seen.unsure = true
	}
	k.seen.generation, k.seen.commits = generation, k.commits
	return nil
}

// heard tells whether our tables were, or may have been, touched since the last call.
func (k *NFTables) heard() (bool, error) {
	if k.seen.away { // the group cannot be joined
		if err := k.count(); err != nil {
			return false, err
		}
	} else if err := k.hear(); err != nil {
		return false, err
	}
	unsure := k.seen.unsure
	k.seen.unsure = false
	return unsure, nil
}

// hear reads what the kernel has told.
func (k *NFTables) hear() error {
	raw, err := k.seen.group.SyscallConn()
	if err != nil {
		return fmt.Errorf("nftables events: %w", err)
	}
	buf := make([]byte, dumpBuffer)
	var fail error
	err = raw.Control(func(fd uintptr) {
		for {
			n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.ENOBUFS): // told more than we could hear
				k.seen.unsure = true
				continue
			case err != nil:
				fail = err
				return
			}
			k.told(buf[:n])
		}
	})
	if err = errors.Join(err, fail); err != nil {
		return fmt.Errorf("nftables events: %w", err)
	}
	return nil
}

// told looks for our tables in the messages of a datagram. Every message about nftables
// names its table in the first attribute, but the one that ends a transaction.
func (k *NFTables) told(b []byte) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			k.seen.unsure = true
			return
		}
		typ, port := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[12:])
		if typ>>8 == unix.NFNL_SUBSYS_NFTABLES && typ&0xff != unix.NFT_MSG_NEWGEN && size >= unix.NLMSG_HDRLEN+nfgenmsgLen && !slices.Contains(k.seen.own, port) {
			eachAttr(b[unix.NLMSG_HDRLEN+nfgenmsgLen:size], func(kind uint16, v []byte) {
				if kind == unix.NFTA_TABLE_NAME && strings.TrimRight(string(v), "\x00") == k.table {
					k.seen.unsure = true
				}
			})
		}
		b = b[min((size+3)&^3, len(b)):]
	}
}

// remember notes a socket of ours, so that its writing is known.
func (k *NFTables) remember(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("nftables netlink socket: %w", err)
	}
	var name unix.Sockaddr
	var fail error
	err = raw.Control(func(fd uintptr) { name, fail = unix.Getsockname(int(fd)) })
	if err = errors.Join(err, fail); err != nil {
		return fmt.Errorf("nftables netlink socket: %w", err)
	}
	if nl, ok := name.(*unix.SockaddrNetlink); ok {
		k.seen.own = append(k.seen.own[max(0, len(k.seen.own)-3):], nl.Pid)
	}
	return nil
}

func (k *NFTables) generation() (uint32, error) {
	c, err := k.session()
	if err != nil {
		return 0, err
	}
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		k.close()
		return 0, fmt.Errorf("nftables generation: %w", err)
	}
	generation, found := uint32(0), false
	for _, m := range replies {
		if len(m.Data) < nfgenmsgLen {
			continue
		}
		eachAttr(m.Data[nfgenmsgLen:], func(kind uint16, v []byte) {
			if kind == unix.NFTA_GEN_ID && len(v) == 4 {
				generation, found = binary.BigEndian.Uint32(v), true
			}
		})
	}
	if !found {
		return 0, errors.New("nftables generation: the kernel tells none")
	}
	return generation, nil
}

func (k *NFTables) gone(v4, v6 bool) (bool, error) {
	c, err := k.conn()
	if err != nil {
		return false, err
	}
	defer c.CloseLasting()
	for i, wanted := range []bool{v4, v6} {
		if !wanted {
			continue
		}
		tables, err := c.ListTablesOfFamily(k.tableOf(i == 1).Family)
		if err != nil {
			return false, fmt.Errorf("nftables tables: %w", err)
		}
		there := false
		for _, t := range tables {
			there = there || t.Name == k.table
		}
		if !there {
			return true, nil
		}
	}
	return false, nil
}

// Foreign tells, once, that Touched was set.
func (k *FakeNFTables) Foreign(v4, v6 bool) (wrote, gone bool, err error) {
	wrote, k.Touched = k.Touched, false
	have, err := k.List()
	return wrote, wrote && err == nil && (v4 && !have.V4 || v6 && !have.V6), err
}
