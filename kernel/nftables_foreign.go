package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sighting is the ruleset's generation at the last look, and the own transactions until
// then.
type sighting struct {
	known               bool
	generation, commits uint32
}

// Foreign tells whether anybody else has written nftables rules in this namespace since
// the last call (the first is true: nothing is known), and whether a table that ought
// to be there is gone, as after nft flush ruleset. The kernel counts transactions
// (NFT_MSG_GETGEN), so what is not ours is somebody's; the answer costs microseconds.
func (k *NFTables) Foreign(v4, v6 bool) (wrote, gone bool, err error) {
	generation, err := k.generation()
	if err != nil {
		return false, false, err
	}
	now := sighting{true, generation, k.commits}
	wrote = !k.seen.known || generation-k.seen.generation != k.commits-k.seen.commits
	k.seen = now
	if !wrote {
		return false, false, nil
	}
	gone, err = k.gone(v4, v6)
	return true, gone, err
}

func (k *NFTables) generation() (uint32, error) {
	c, err := k.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
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
