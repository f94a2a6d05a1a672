package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairway/proxy"

	"github.com/cilium/ebpf"
)

// EBPFCount is what went through one Service port, by its number in the maps
// (proxy/ebpf.ServiceID). Bytes are IP packets that were translated at an interface;
// connections of sockets are counted too, and have no bytes.
type EBPFCount struct {
	Connections, BytesIn, BytesOut uint64
}

// Counters reads what the programs have counted.
func (k *EBPF) Counters() (map[uint64]EBPFCount, error) {
	counts := k.maps["counts"]
	if counts == nil {
		return nil, nil
	}
	out := map[uint64]EBPFCount{}
	var id uint64
	var perCPU []EBPFCount
	it := counts.Iterate()
	for it.Next(&id, &perCPU) {
		var sum EBPFCount
		for _, c := range perCPU {
			sum.Connections += c.Connections
			sum.BytesIn += c.BytesIn
			sum.BytesOut += c.BytesOut
		}
		out[id] = sum
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("map counts: %w", err)
	}
	return out, nil
}

// DropCounters forgets those of Service ports that are gone.
func (k *EBPF) DropCounters(keep func(id uint64) bool) error {
	all, err := k.Counters()
	if err != nil {
		return err
	}
	for id := range all {
		if keep(id) {
			continue
		}
		if err := k.maps["counts"].Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("map counts: %w", err)
		}
	}
	return nil
}

// doorFlow is an element of the map flows, as in bpf/layout.h.
type doorFlow struct {
	key, to doorTuple
	flags   uint32
	service uint64
}

type doorTuple struct {
	src, dst netip.AddrPort
	proto    uint8
	door     uint8
}

const (
	doorIn, doorOut = 0, 1
	flowReply       = 4
	protoUDP        = 17
)

func readDoorTuple(b string) doorTuple {
	at := func(i, port int) netip.AddrPort {
		a, _ := netip.AddrFromSlice([]byte(b[i : i+16]))
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16([]byte(b[port:port+2])))
	}
	return doorTuple{src: at(0, 32), dst: at(16, 34)}
}

func readDoorFlow(key, value string) doorFlow {
	f := doorFlow{key: readDoorTuple(key), to: readDoorTuple(value)}
	f.key.proto, f.key.door = key[36], key[37]
	f.to.proto = f.key.proto
	f.flags = binary.LittleEndian.Uint32([]byte(value[36:40]))
	f.service = binary.LittleEndian.Uint64([]byte(value[48:56]))
	return f
}

func (t doorTuple) bytes() string {
	b := make([]byte, 0, 40)
	for _, a := range []netip.AddrPort{t.src, t.dst} {
		ip := a.Addr().As16()
		b = append(b, ip[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, t.src.Port())
	b = binary.BigEndian.AppendUint16(b, t.dst.Port())
	return string(append(b, t.proto, t.door, 0, 0))
}

// turned is the packet that answers one with this doorTuple.
func (t doorTuple) turned(door uint8) doorTuple { return doorTuple{t.dst, t.src, t.proto, door} }

// Forget deletes the UDP flows of the list from the programs' table, in every direction:
// the next packet of such a client is a new flow. It returns how many clients it was.
func (k *EBPF) Forget(list []proxy.Flow) (int, error) {
	if k.maps == nil || len(list) == 0 {
		return 0, nil
	}
	m := k.maps["flows"]
	byDst := map[netip.AddrPort][]netip.AddrPort{}
	for _, f := range list {
		byDst[f.Dst] = f.Keep
	}
	var stale []doorFlow
	err := eachElement(m, func(key, value string) {
		if key[36] != protoUDP || key[37] != doorIn {
			return
		}
		if f := readDoorFlow(key, value); f.service != 0 && isStale(f, byDst) {
			stale = append(stale, f)
		}
	})
	if err != nil {
		return 0, fmt.Errorf("map flows: %w", err)
	}
	for _, f := range stale {
		if err := forgetFlow(m, f); err != nil {
			return 0, fmt.Errorf("map flows: %w", err)
		}
	}
	return len(stale), nil
}

func isStale(f doorFlow, byDst map[netip.AddrPort][]netip.AddrPort) bool {
	keep, ok := byDst[f.key.dst]
	if !ok {
		anyAddr := netip.IPv4Unspecified()
		if f.key.dst.Addr().Is6() {
			anyAddr = netip.IPv6Unspecified()
		}
		keep, ok = byDst[netip.AddrPortFrom(anyAddr, f.key.dst.Port())]
	}
	return ok && !slices.Contains(keep, f.to.dst)
}

// forgetFlow deletes the up to four elements of a connection: see bpf/tc.h.
func forgetFlow(m *ebpf.Map, f doorFlow) error {
	leaves := f.to
	leaves.door = doorOut
	keys := []string{f.key.bytes(), f.to.turned(doorOut).bytes(), leaves.bytes()}
	if value, err := m.LookupBytes(leaves.bytes()); err == nil && len(value) > 0 {
		masqueraded := readDoorFlow(leaves.bytes(), string(value))
		keys = append(keys, masqueraded.to.turned(doorIn).bytes())
	}
	for _, key := range keys {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}
