package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairway/proxy/ipvs"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// List reads a family's virtual services, sets, addresses and rules.
func (k *IPVS) List(ctx context.Context, v6 bool) (*ipvs.State, error) {
	st := ipvs.NewState(v6)
	if err := k.listServices(st); err != nil && !(k.look && errors.Is(err, ErrNoIPVS)) {
		return nil, err
	}
	sets, err := k.ipset(ctx, "", "save")
	if err != nil && !(k.look && errors.Is(err, ErrNoIPSet)) {
		return nil, err
	}
	if err := st.ReadSets(sets); err != nil {
		return nil, err
	}
	if st.Addrs, err = k.bound(v6); err != nil {
		return nil, err
	}
	if t := k.rules[index(v6)]; t != nil {
		rules, err := t.run(ctx, "", t.tools.save)
		if err != nil {
			return nil, err
		}
		st.ReadRules(rules)
	}
	return st, nil
}

func index(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

func (k *IPVS) listServices(st *ipvs.State) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dial(); err != nil {
		return err
	}
	list, err := k.dump(ipvsGetService, attrs{})
	if err != nil {
		return fmt.Errorf("ipvs services: %w", err)
	}
	for _, m := range list {
		s := readService(m)
		if s.key.V6 != st.V6 || s.key.Mark == 0 && k.excluded(s.key.Addr.Addr()) {
			continue
		}
		l := ipvs.ListedService{Options: s.options}
		if l.To, err = k.destinations(s.key); err != nil {
			return err
		}
		st.Services[s.key] = l
	}
	return nil
}

func (k *IPVS) excluded(a netip.Addr) bool {
	return slices.ContainsFunc(k.Exclude, func(p netip.Prefix) bool { return p.Contains(a) })
}

// dump returns the answers' attributes.
func (k *IPVS) dump(cmd byte, a attrs) ([][]byte, error) {
	list, err := k.conn.Execute(k.message(cmd, netlink.Dump, a))
	if err != nil {
		return nil, cause(err)
	}
	out := make([][]byte, len(list))
	for i, m := range list {
		out[i] = genericPayload(m)
	}
	return out, nil
}

// listedService is a virtual service with what went through it.
type listedService struct {
	key     ipvs.ServiceKey
	options ipvs.Options
	stats   IPVSCount
}

// IPVSCount is what went through a virtual service since it was made.
type IPVSCount struct{ Connections, BytesIn, BytesOut uint64 }

func readService(b []byte) listedService {
	var s listedService
	var addr []byte
	var port, proto uint16
	var persist uint32
	flags := uint32(0)
	eachAttr(b, func(kind uint16, v []byte) {
		if kind != ipvsAttrService {
			return
		}
		eachAttr(v, func(kind uint16, v []byte) {
			switch {
			case kind == ipvsSvcFamily && len(v) >= 2:
				s.key.V6 = binary.NativeEndian.Uint16(v) == addressFamily(true)
			case kind == ipvsSvcProto && len(v) >= 2:
				proto = binary.NativeEndian.Uint16(v)
			case kind == ipvsSvcAddr:
				addr = v
			case kind == ipvsSvcPort && len(v) >= 2:
				port = binary.BigEndian.Uint16(v)
			case kind == ipvsSvcMark && len(v) >= 4:
				s.key.Mark = binary.NativeEndian.Uint32(v)
			case kind == ipvsSvcSched:
				s.options.Scheduler = cString(v)
			case kind == ipvsSvcFlags && len(v) >= 4:
				flags = binary.NativeEndian.Uint32(v)
			case kind == ipvsSvcTimeout && len(v) >= 4:
				persist = binary.NativeEndian.Uint32(v)
			case kind == ipvsSvcStats:
				s.stats = readCount(v)
			}
		})
	})
	s.options.Fallback = flags&ipvsFallback != 0
	if flags&ipvsPersistent != 0 {
		s.options.Persist = persist
	}
	if s.key.Mark == 0 {
		s.key.Proto, s.key.Addr = protocol(proto), netip.AddrPortFrom(unionAddr(addr, s.key.V6), port)
	}
	return s
}

// readCount reads ip_vs's 64-bit statistics: connections, packets and bytes, in and out.
func readCount(b []byte) IPVSCount {
	var c IPVSCount
	eachAttr(b, func(kind uint16, v []byte) {
		if len(v) < 8 {
			return
		}
		n := binary.NativeEndian.Uint64(v)
		switch kind {
		case 1:
			c.Connections = n
		case 4:
			c.BytesIn = n
		case 5:
			c.BytesOut = n
		}
	})
	return c
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// unionAddr reads an address of which IPv4 uses the first four bytes.
func unionAddr(b []byte, v6 bool) netip.Addr {
	size := 4
	if v6 {
		size = 16
	}
	a, _ := netip.AddrFromSlice(b[:min(size, len(b))])
	return a
}

func (k *IPVS) destinations(key ipvs.ServiceKey) (map[netip.AddrPort]ipvs.Destination, error) {
	var a attrs
	a.nest(ipvsAttrService, func() { a.serviceKey(key) })
	list, err := k.dump(ipvsGetDest, a)
	if err != nil {
		return nil, fmt.Errorf("ipvs destinations of %s: %w", key.Text(), err)
	}
	out := make(map[netip.AddrPort]ipvs.Destination, len(list))
	for _, m := range list {
		to, d := readDestination(m, key.V6)
		out[to] = d
	}
	return out, nil
}

func readDestination(b []byte, v6 bool) (netip.AddrPort, ipvs.Destination) {
	var d ipvs.Destination
	var addr netip.Addr
	var port uint16
	eachAttr(b, func(kind uint16, v []byte) {
		if kind != ipvsAttrDest {
			return
		}
		eachAttr(v, func(kind uint16, v []byte) {
			switch {
			case kind == ipvsDestAddr:
				addr = unionAddr(v, v6)
			case kind == ipvsDestPort && len(v) >= 2:
				port = binary.BigEndian.Uint16(v)
			case len(v) < 4:
			case kind == ipvsDestWeight:
				d.Weight = int(binary.NativeEndian.Uint32(v))
			case kind == ipvsDestActive:
				d.Active = int(binary.NativeEndian.Uint32(v))
			case kind == ipvsDestInactive:
				d.Inactive = int(binary.NativeEndian.Uint32(v))
			}
		})
	})
	return netip.AddrPortFrom(addr, port), d
}

// there asks for one virtual service.
func (k *IPVS) there(key ipvs.ServiceKey) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dial(); err != nil {
		return false, err
	}
	var a attrs
	a.nest(ipvsAttrService, func() { a.serviceKey(key) })
	_, err := k.conn.Execute(k.message(ipvsGetService, 0, a))
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// Destinations reads those of one virtual service; none when it is gone.
func (k *IPVS) Destinations(key ipvs.ServiceKey) (map[netip.AddrPort]ipvs.Destination, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dial(); err != nil {
		return nil, err
	}
	return k.destinations(key)
}

// Counts reads what went through each virtual service.
func (k *IPVS) Counts() (map[ipvs.ServiceKey]IPVSCount, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dial(); err != nil {
		return nil, err
	}
	list, err := k.dump(ipvsGetService, attrs{})
	if err != nil {
		return nil, fmt.Errorf("ipvs services: %w", err)
	}
	out := make(map[ipvs.ServiceKey]IPVSCount, len(list))
	for _, m := range list {
		s := readService(m)
		out[s.key] = s.stats
	}
	return out, nil
}
