package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"sync"
	"time"

	"fairway/packet"
	"fairway/proxy/ipvs"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// IPVS is the hand on everything IPVS mode needs in one network namespace: virtual
// services (generic netlink), the dummy device's addresses, ipsets, and rules through
// iptables.
type IPVS struct {
	netns int
	look  bool         // loads no module
	rules [2]*IPTables // by family; nil where it cannot be served
	// Exclude are ranges whose virtual services are others': List does not tell them.
	Exclude []netip.Prefix

	mu     sync.Mutex
	conn   *netlink.Conn
	family uint16
}

// ErrNoIPVS is the reason when the kernel or the node lacks what IPVS mode needs; the
// error names each.
var ErrNoIPVS = errors.New("IPVS mode cannot run here")

// Commands and attributes of IPVS (linux/ip_vs.h).
const (
	ipvsNewService = 1
	ipvsSetService = 2
	ipvsDelService = 3
	ipvsGetService = 4
	ipvsNewDest    = 5
	ipvsSetDest    = 6
	ipvsDelDest    = 7
	ipvsGetDest    = 8
	ipvsSetConfig  = 12

	ipvsAttrService = 1
	ipvsAttrDest    = 2
	ipvsAttrTimeout = 4 // TCP; TCP after FIN and UDP follow

	ipvsSvcFamily  = 1
	ipvsSvcProto   = 2
	ipvsSvcAddr    = 3
	ipvsSvcPort    = 4
	ipvsSvcMark    = 5
	ipvsSvcSched   = 6
	ipvsSvcFlags   = 7
	ipvsSvcTimeout = 8
	ipvsSvcMask    = 9
	ipvsSvcStats   = 12

	ipvsDestAddr     = 1
	ipvsDestPort     = 2
	ipvsDestMethod   = 3
	ipvsDestWeight   = 4
	ipvsDestUpper    = 5
	ipvsDestLower    = 6
	ipvsDestActive   = 7
	ipvsDestInactive = 8

	ipvsPersistent = 0x1
	ipvsFallback   = 0x8 // of sh and mh
)

// opsBatch is the number of operations sent at a time; their answers fit into the
// socket's buffer.
const opsBatch = 128

// dial connects to IPVS, loading it when the kernel can.
func (k *IPVS) dial() error {
	if k.conn != nil {
		return nil
	}
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, &netlink.Config{NetNS: k.netns})
	if err != nil {
		return fmt.Errorf("generic netlink: %w", err)
	}
	family, err := genericFamily(conn, "IPVS")
	if errors.Is(err, unix.ENOENT) && !k.look {
		_ = exec.Command("modprobe", "ip_vs").Run()
		family, err = genericFamily(conn, "IPVS")
	}
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("%w: the kernel has no IP virtual server (module ip_vs): %w", ErrNoIPVS, err)
	}
	k.conn, k.family = conn, family
	return nil
}

// genericFamily asks generic netlink's controller for a family's number.
func genericFamily(conn *netlink.Conn, name string) (uint16, error) {
	var a attrs
	a.str(unix.CTRL_ATTR_FAMILY_NAME, name)
	list, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.GENL_ID_CTRL, Flags: netlink.Request},
		Data:   append([]byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0}, a.b...),
	})
	if err != nil {
		return 0, err
	}
	var id uint16
	for _, m := range list {
		eachAttr(genericPayload(m), func(kind uint16, v []byte) {
			if kind == unix.CTRL_ATTR_FAMILY_ID && len(v) >= 2 {
				id = binary.NativeEndian.Uint16(v)
			}
		})
	}
	if id == 0 {
		return 0, unix.ENOENT
	}
	return id, nil
}

// genericPayload is what follows generic netlink's own header.
func genericPayload(m netlink.Message) []byte { return m.Data[min(4, len(m.Data)):] }

func (k *IPVS) message(cmd byte, flags netlink.HeaderFlags, a attrs) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(k.family), Flags: netlink.Request | flags},
		Data:   append([]byte{cmd, 1, 0, 0}, a.b...),
	}
}

// Do carries operations out one after the other and returns an error for each, nil
// where it worked. What is there already, or gone already, is as good as done.
func (k *IPVS) Do(ops []ipvs.Op) []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := make([]error, len(ops))
	if err := k.dial(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	for from := 0; from < len(ops); from += opsBatch {
		to := min(from+opsBatch, len(ops))
		k.do(ops[from:to], errs[from:to])
	}
	return errs
}

func (k *IPVS) do(ops []ipvs.Op, errs []error) {
	msgs := make([]netlink.Message, len(ops))
	for i, o := range ops {
		msgs[i] = k.message(command(o.Verb), netlink.Acknowledge, opAttrs(o))
	}
	sent, err := k.conn.SendMessages(msgs)
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("ipvs: %w", err)
		}
		return
	}
	for i := range sent {
		_, err := k.conn.Receive() // one answer each, in their order
		switch v := ops[i].Verb; {
		case errors.Is(err, unix.EEXIST) && (v == ipvs.AddService || v == ipvs.AddDestination):
		case errors.Is(err, unix.ENOENT) && (v == ipvs.DeleteDestination || v == ipvs.DeleteService),
			errors.Is(err, unix.ESRCH) && (v == ipvs.DeleteDestination || v == ipvs.DeleteService):
		case err != nil:
			errs[i] = fmt.Errorf("ipvsadm %s: %w", ops[i].Text(), cause(err))
		}
	}
}

func command(v ipvs.OpVerb) byte {
	switch v {
	case ipvs.AddService:
		return ipvsNewService
	case ipvs.EditService:
		return ipvsSetService
	case ipvs.DeleteService:
		return ipvsDelService
	case ipvs.AddDestination:
		return ipvsNewDest
	case ipvs.EditDestination:
		return ipvsSetDest
	}
	return ipvsDelDest
}

func opAttrs(o ipvs.Op) attrs {
	var a attrs
	a.nest(ipvsAttrService, func() {
		a.serviceKey(o.Key)
		if o.Verb == ipvs.AddService || o.Verb == ipvs.EditService {
			a.serviceOptions(o.Key, o.Options)
		}
	})
	if o.To.IsValid() {
		a.nest(ipvsAttrDest, func() {
			a.addr(ipvsDestAddr, o.To.Addr())
			a.port(ipvsDestPort, o.To.Port())
			a.native32(ipvsDestMethod, 0) // masquerading: NAT
			a.native32(ipvsDestWeight, uint32(o.Weight))
			a.native32(ipvsDestUpper, 0)
			a.native32(ipvsDestLower, 0)
		})
	}
	return a
}

func (a *attrs) native16(typ, v uint16) { a.bytes(typ, binary.NativeEndian.AppendUint16(nil, v)) }

func (a *attrs) native32(typ uint16, v uint32) {
	a.bytes(typ, binary.NativeEndian.AppendUint32(nil, v))
}

func (a *attrs) port(typ, v uint16) { a.bytes(typ, binary.BigEndian.AppendUint16(nil, v)) }

func (a *attrs) addr(typ uint16, v netip.Addr) { a.bytes(typ, v.AsSlice()) }

func (a *attrs) serviceKey(key ipvs.ServiceKey) {
	a.native16(ipvsSvcFamily, addressFamily(key.V6))
	if key.Mark != 0 {
		a.native32(ipvsSvcMark, key.Mark)
		return
	}
	a.native16(ipvsSvcProto, uint16(key.Proto.Number()))
	a.addr(ipvsSvcAddr, key.Addr.Addr())
	a.port(ipvsSvcPort, key.Addr.Port())
}

func addressFamily(v6 bool) uint16 {
	if v6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (a *attrs) serviceOptions(key ipvs.ServiceKey, o ipvs.Options) {
	var flags uint32
	if o.Persist > 0 {
		flags |= ipvsPersistent
	}
	if o.Fallback {
		flags |= ipvsFallback
	}
	mask := ^uint32(0) // every client for itself
	if key.V6 {
		mask = 128
	}
	a.str(ipvsSvcSched, o.Scheduler)
	a.bytes(ipvsSvcFlags, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, flags), ^uint32(0)))
	a.native32(ipvsSvcTimeout, o.Persist)
	a.native32(ipvsSvcMask, mask)
}

// Timeouts sets how long idle connections are kept: TCP, TCP after a FIN, UDP; zero
// leaves the kernel's.
func (k *IPVS) Timeouts(tcp, fin, udp time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dial(); err != nil {
		return err
	}
	var a attrs
	for i, d := range []time.Duration{tcp, fin, udp} {
		a.native32(ipvsAttrTimeout+uint16(i), uint32(d/time.Second))
	}
	_, err := k.conn.Execute(k.message(ipvsSetConfig, netlink.Acknowledge, a))
	if err != nil {
		return fmt.Errorf("ipvs timeouts: %w", err)
	}
	return nil
}

func protocol(n uint16) packet.Protocol {
	for _, p := range []packet.Protocol{packet.TCP, packet.UDP, packet.SCTP} {
		if uint16(p.Number()) == n {
			return p
		}
	}
	return ""
}

// cause is the kernel's own word of a netlink error.
func cause(err error) error {
	var op *netlink.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
