package announce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
)

// port is one interface with its sockets. The readers look only at answers, which is
// replaced whole.
type port struct {
	name  string
	index int
	mac   MAC

	arp, neighbour *os.File // opened with the first address of their family
	groups         *groups
	answers        atomic.Pointer[map[netip.Addr]bool]
	down           atomic.Bool
	owner          *Announcer
}

// same tells whether the interface is still the one the sockets were opened on.
func (p *port) same(ifi net.Interface) bool {
	return p.index == ifi.Index && p.mac == macOf(ifi) && !p.down.Load()
}

func macOf(ifi net.Interface) MAC {
	var m MAC
	copy(m[:], ifi.HardwareAddr)
	return m
}

// set makes the port answer for exactly these addresses.
func (p *port) set(addrs map[netip.Addr]bool) error {
	var v4 bool
	want := map[netip.Addr]bool{}
	for a := range addrs {
		if a.Is4() {
			v4 = true
		} else {
			want[SolicitedNode(a)] = true
		}
	}
	var errs []error
	if v4 && p.arp == nil {
		errs = append(errs, p.open(&p.arp, etherARP))
	}
	if len(want) > 0 && p.neighbour == nil {
		errs = append(errs, p.open(&p.neighbour, etherIPv6))
	}
	if len(want) > 0 && p.groups == nil {
		g, err := openGroups(p.index)
		errs, p.groups = append(errs, err), g
	}
	if p.groups != nil {
		errs = append(errs, p.groups.set(want))
	}
	p.answers.Store(&addrs)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("interface %s: %w", p.name, err)
	}
	return nil
}

func (p *port) open(f **os.File, ether uint16) error {
	filter, handle := arpFilter(), p.onARP
	if ether == etherIPv6 {
		filter, handle = neighbourFilter(), p.onNeighbour
	}
	s, err := openPacket(p.index, ether, filter)
	if err != nil {
		return err
	}
	*f = s
	go p.read(s, handle)
	return nil
}

// read ends with the socket; an interface that went down is opened anew by the next scan.
func (p *port) read(f *os.File, handle func([]byte)) {
	buf := make([]byte, 2048)
	for {
		n, err := f.Read(buf)
		if err != nil {
			p.down.Store(true)
			return
		}
		handle(buf[:n])
	}
}

func (p *port) onARP(frame []byte) {
	a, ok := ParseARP(frame)
	if !ok || a.SenderMAC == p.mac {
		return
	}
	if addr, claims := a.Claim(); claims {
		p.owner.claimed(p, addr, a.SenderMAC)
		return
	}
	if p.answersFor(a.Target) {
		p.send(p.arp, a.Answer(p.mac).Frame())
	}
}

func (p *port) onNeighbour(frame []byte) {
	n, ok := ParseNeighbour(frame)
	if !ok || n.From == p.mac {
		return
	}
	if n.Advertise {
		if n.Override && n.HasLink && n.Link != p.mac {
			p.owner.claimed(p, n.Target, n.Link)
		}
		return
	}
	if p.answersFor(n.Target) {
		p.send(p.neighbour, n.Answer(p.mac).Frame())
	}
}

func (p *port) answersFor(addr netip.Addr) bool {
	return p.has(addr) && p.owner.mayAnswer(addr)
}

func (p *port) has(addr netip.Addr) bool {
	m := p.answers.Load()
	return m != nil && (*m)[addr]
}

// gratuitous sends the unasked announcement of an address.
func (p *port) gratuitous(addr netip.Addr) {
	if addr.Is4() {
		p.send(p.arp, Gratuitous(ARPRequest, addr, p.mac).Frame())
		p.send(p.arp, Gratuitous(ARPReply, addr, p.mac).Frame())
		return
	}
	p.send(p.neighbour, Unsolicited(addr, p.mac).Frame())
}

// send ignores errors: the wire is lossy anyway, askers ask again and bursts repeat.
func (p *port) send(f *os.File, frame []byte) {
	if f != nil {
		if _, err := f.Write(frame); err == nil {
			p.owner.sent.Add(1)
		}
	}
}

func (p *port) close() {
	for _, f := range []*os.File{p.arp, p.neighbour} {
		if f != nil {
			_ = f.Close()
		}
	}
	if p.groups != nil {
		p.groups.close()
	}
}
