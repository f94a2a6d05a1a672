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

const (
	doorIn   = 0
	protoUDP = 17
)

// doorFlow is the element of the map flows for what a client sends, see bpf/layout.h: dst
// is the frontend, to the endpoint.
type doorFlow struct {
	key     string
	dst, to netip.AddrPort
}

// readDoorFlow is false for what is no UDP client's.
func readDoorFlow(key, value string) (f doorFlow, ok bool) {
	service := binary.LittleEndian.Uint64([]byte(value[48:56]))
	if key[36] != protoUDP || key[37] != doorIn || service == 0 {
		return f, false
	}
	dst := func(b string) netip.AddrPort {
		a, _ := netip.AddrFromSlice([]byte(b[16:32]))
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16([]byte(b[34:36])))
	}
	return doorFlow{key, dst(key), dst(value)}, true
}

// Forget deletes the UDP flows of the list from the programs' table: the next packet of
// such a client is a new flow. Answers that are under way still find their way back. It
// returns how many clients it was.
func (k *EBPF) Forget(list []proxy.Flow) (int, error) {
	if k.maps == nil || len(list) == 0 {
		return 0, nil
	}
	m := k.maps["flows"]
	byDst := map[netip.AddrPort][]netip.AddrPort{}
	var within []netip.Prefix
	for _, f := range list {
		if f.Within.IsValid() {
			within = append(within, f.Within)
			continue
		}
		byDst[f.Dst] = f.Keep
	}
	var stale []string
	err := eachElement(m, func(key, value string) {
		if f, ok := readDoorFlow(key, value); ok && isStale(f, byDst, within) {
			stale = append(stale, f.key)
		}
	})
	if err != nil {
		return 0, fmt.Errorf("map flows: %w", err)
	}
	for _, key := range stale {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, fmt.Errorf("map flows: %w", err)
		}
	}
	return len(stale), nil
}

func isStale(f doorFlow, byDst map[netip.AddrPort][]netip.AddrPort, within []netip.Prefix) bool {
	keep, ok := byDst[f.dst]
	if !ok {
		anyAddr := netip.IPv4Unspecified()
		if f.dst.Addr().Is6() {
			anyAddr = netip.IPv6Unspecified()
		}
		keep, ok = byDst[netip.AddrPortFrom(anyAddr, f.dst.Port())]
	}
	if !ok {
		return slices.ContainsFunc(within, func(r netip.Prefix) bool { return r.Contains(f.dst.Addr()) })
	}
	return !slices.Contains(keep, f.to)
}
