package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"fairway/proxy/nftables"

	"golang.org/x/sys/unix"
)

// Counts reads the counters of all frontends of the families' tables. Without counters
// there is nothing to visit.
func (k *NFTables) Counts(v4, v6 bool, visit func(e nftables.Elem, packets uint64)) error {
	c, err := k.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	for i, wanted := range []bool{v4, v6} {
		for _, kind := range nftables.LayoutKinds() {
			if !wanted || !kind.Frontend() {
				continue
			}
			var a attrs
			a.str(unix.NFTA_SET_ELEM_LIST_TABLE, k.table)
			a.str(unix.NFTA_SET_ELEM_LIST_SET, kind.String())
			set := nftables.Set{V6: i == 1, Kind: kind}
			err := dump(c, unix.NFT_MSG_GETSETELEM, set.V6, &a, func(msg []byte) { readCounts(msg, set, visit) })
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("counters of set %s: %w", kind, err)
			}
		}
	}
	return nil
}

func readCounts(msg []byte, set nftables.Set, visit func(nftables.Elem, uint64)) {
	eachAttr(msg, func(typ uint16, list []byte) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		eachAttr(list, func(_ uint16, item []byte) {
			if n, ok := readCounter(item); ok {
				visit(readElem(item, set), n)
			}
		})
	})
}

// readCounter finds the packets counted by an element.
func readCounter(item []byte) (packets uint64, ok bool) {
	eachAttr(item, func(typ uint16, v []byte) {
		if typ != unix.NFTA_SET_ELEM_EXPR {
			return
		}
		counter := false
		eachAttr(v, func(typ uint16, v []byte) {
			switch {
			case typ == unix.NFTA_EXPR_NAME:
				counter = strings.TrimRight(string(v), "\x00") == "counter"
			case typ == unix.NFTA_EXPR_DATA && counter:
				eachAttr(v, func(typ uint16, v []byte) {
					if typ == unix.NFTA_COUNTER_PACKETS && len(v) == 8 {
						packets, ok = binary.BigEndian.Uint64(v), true
					}
				})
			}
		})
	})
	return packets, ok
}

// ProbeCounters tells why elements of maps cannot count, nil when they can.
func (k *NFTables) ProbeCounters(v6 bool) error {
	defer k.close()
	set := nftables.Set{V6: v6, Kind: nftables.Services, Name: nftables.Services.String(), Counter: true}
	err := k.transaction(probeTable, []nftables.Op{{Action: nftables.AddTable, V6: v6}, {Action: nftables.AddSet, V6: v6, Set: &set}})
	if err == nil {
		err = k.transaction(probeTable, []nftables.Op{{Action: nftables.DelTable, V6: v6}})
	}
	if err != nil {
		return fmt.Errorf("%s: counters in map elements (Linux 5.7): %w", familyName(v6), err)
	}
	return nil
}

// Counts of the fake: every element has met seven packets.
func (k *FakeNFTables) Counts(v4, v6 bool, visit func(e nftables.Elem, packets uint64)) error {
	for _, e := range k.state.elems {
		if set := k.state.sets[fakeName{e.V6, e.Kind.String()}]; set.Counter && (e.V6 && v6 || !e.V6 && v4) {
			visit(e, 7)
		}
	}
	return nil
}
