// Package announce is the voice on the wire: the addresses this node owns come in, ARP
// and NDP answers and unasked announcements go out. Nothing is bound to an interface,
// so an address dies with the process. It never decides who owns an address; it only
// falls silent, by its Fence, when it may own nothing.
package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Announcer answers for addresses on this machine's interfaces. The zero value with
// Fence nil answers always.
type Announcer struct {
	Fence *Fence
	Log   *slog.Logger // nil is slog.Default()
	// Skip holds prefixes of interface names never used unless an address names the
	// interface; nil is DefaultSkip.
	Skip []string

	mu   sync.Mutex
	want map[netip.Addr][]string
	// applied is false until want was applied without an error.
	applied bool
	ports   map[string]*port
	bursts  []burst
	wake    chan struct{}
	claims  map[netip.Addr]bool // other stations' claims since the Lease lapsed
	leased  bool

	sent      atomic.Uint64
	conflicts atomic.Uint64
}

// DefaultSkip names interfaces that lead to Pods and tunnels, not to the LAN.
func DefaultSkip() []string {
	return []string{"docker", "cbr", "dummy", "virbr", "lxcbr", "veth", "cali", "tunl", "flannel", "kube-ipvs", "cni", "nodelocaldns", "lxc", "cilium", "br-"}
}

// burst is one address on one port whose unasked announcements are under way.
type burst struct {
	port  *port
	addr  netip.Addr
	began time.Duration
	step  int
}

// Unasked announcements go out at once and then every burstEvery, for burstSpan.
const (
	burstEvery = 1100 * time.Millisecond
	burstSpan  = 5 * time.Second
)

// Set makes the node answer for exactly these addresses, each on the named interfaces
// (none named: every interface with an address of that family that is not skipped).
// Addresses new to an interface are announced. The error names interfaces that could
// not be used; all others work. Missing interfaces are looked for again by Run.
func (a *Announcer) Set(want map[netip.Addr][]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.applied && maps.EqualFunc(a.want, want, slices.Equal) {
		return nil // Run looks after the interfaces
	}
	a.want = want
	err := a.apply()
	a.applied = err == nil
	return err
}

// apply brings ports and answers in line with want and the interfaces there are.
func (a *Announcer) apply() error {
	ifis, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	if a.ports == nil {
		a.ports = map[string]*port{}
	}
	var errs []error
	seen := map[string]bool{}
	for _, ifi := range ifis {
		addrs := a.addrsOn(ifi)
		if len(addrs) == 0 {
			continue
		}
		seen[ifi.Name] = true
		errs = append(errs, a.portOf(ifi).update(a, addrs))
	}
	for name, p := range a.ports {
		if !seen[name] {
			p.close()
			delete(a.ports, name)
		}
	}
	a.bursts = slices.DeleteFunc(a.bursts, func(b burst) bool { return !b.port.has(b.addr) || a.ports[b.port.name] != b.port })
	a.poke()
	return errors.Join(errs...)
}

// update sets the port's addresses and starts a burst for those new to it.
func (p *port) update(a *Announcer, addrs map[netip.Addr]bool) error {
	old := p.answers.Load()
	err := p.set(addrs)
	for addr := range addrs {
		if old == nil || !(*old)[addr] {
			a.bursts = append(a.bursts, burst{port: p, addr: addr, began: Now()})
		}
	}
	return err
}

// portOf is the port of an interface, a new one when the interface is another now.
func (a *Announcer) portOf(ifi net.Interface) *port {
	if p := a.ports[ifi.Name]; p != nil {
		if p.same(ifi) {
			return p
		}
		p.close()
	}
	p := &port{name: ifi.Name, index: ifi.Index, mac: macOf(ifi), owner: a}
	a.ports[ifi.Name] = p
	return p
}

// addrsOn is what to answer for on an interface.
func (a *Announcer) addrsOn(ifi net.Interface) map[netip.Addr]bool {
	if len(a.want) == 0 || ifi.Flags&net.FlagUp == 0 || ifi.Flags&net.FlagLoopback != 0 || len(ifi.HardwareAddr) != 6 {
		return nil
	}
	v4, v6 := a.families(ifi)
	out := map[netip.Addr]bool{}
	for addr, names := range a.want {
		if len(names) == 0 && (addr.Is4() && v4 || addr.Is6() && v6) || slices.Contains(names, ifi.Name) {
			out[addr] = true
		}
	}
	return out
}

// families tells for which families an interface nobody named is used: those it has a
// global address of.
func (a *Announcer) families(ifi net.Interface) (v4, v6 bool) {
	skip := a.Skip
	if skip == nil {
		skip = DefaultSkip()
	}
	if slices.ContainsFunc(skip, func(p string) bool { return strings.HasPrefix(ifi.Name, p) }) {
		return false, false
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return false, false
	}
	for _, x := range addrs {
		p, err := netip.ParsePrefix(x.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	return v4, v6
}

// Run sends the bursts, keeps the fence's clock and looks for changed interfaces,
// until ctx ends; then it closes everything and nothing answers any more.
func (a *Announcer) Run(ctx context.Context) {
	a.mu.Lock()
	if a.wake == nil {
		a.wake = make(chan struct{}, 1)
	}
	a.mu.Unlock()
	tick := time.NewTicker(TickEvery)
	defer tick.Stop()
	scan := time.NewTicker(2 * time.Second)
	defer scan.Stop()
	defer a.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-scan.C:
			a.rescan()
		case <-a.wake:
			a.sendBursts()
		case <-tick.C:
			a.tick()
			a.sendBursts()
		}
	}
}

func (a *Announcer) poke() {
	if a.wake != nil {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

func (a *Announcer) rescan() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.want) == 0 && len(a.ports) == 0 {
		return
	}
	if err := a.apply(); err != nil {
		a.log().Warn("announce: interfaces", "error", err)
	}
}

// tick follows the Lease: when it is back after a lapse everything is announced anew,
// since another node may have had the addresses meanwhile.
func (a *Announcer) tick() {
	if a.Fence == nil {
		return
	}
	now := Now()
	a.Fence.Tick(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.leased
	a.leased = a.Fence.Leased(now)
	if a.leased == was {
		return
	}
	a.claims, a.bursts = nil, nil
	if !a.leased {
		a.log().Warn("announce: the node's Lease was not renewed in time: no address is answered for")
		return
	}
	for _, p := range a.ports {
		for addr := range *p.answers.Load() {
			a.bursts = append(a.bursts, burst{port: p, addr: addr, began: now})
		}
	}
}

func (a *Announcer) sendBursts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := Now()
	if a.Fence != nil && !a.Fence.Leased(now) {
		return // an unasked claim needs a Lease; tick starts over when it is back
	}
	left := a.bursts[:0]
	for _, b := range a.bursts {
		if !b.port.has(b.addr) {
			continue
		}
		if now >= b.began+time.Duration(b.step)*burstEvery {
			b.port.gratuitous(b.addr)
			b.step++
		}
		if time.Duration(b.step)*burstEvery < burstSpan {
			left = append(left, b)
		}
	}
	a.bursts = left
}

// mayAnswer is asked for every request.
func (a *Announcer) mayAnswer(addr netip.Addr) bool {
	if a.Fence == nil {
		return true
	}
	now := Now()
	if a.Fence.Leased(now) {
		return true
	}
	if !a.Fence.Open(now) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.claims[addr]
}

// claimed notes that another station says it has one of our addresses. With a Lease
// that is a fault worth a line; without one it ends our holding on to the address.
func (a *Announcer) claimed(p *port, addr netip.Addr, by MAC) {
	if !p.has(addr) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, own := range a.ports {
		if own.mac == by {
			return // our own burst, heard on another interface of the same LAN
		}
	}
	if a.Fence != nil && !a.Fence.Leased(Now()) {
		if a.claims == nil {
			a.claims = map[netip.Addr]bool{}
		}
		a.claims[addr] = true
		return
	}
	if n := a.conflicts.Add(1); n&(n-1) == 0 { // 1, 2, 4, 8, …: a storm fills no log
		a.log().Warn("announce: another station claims an address of this node", "address", addr, "interface", p.name, "by", net.HardwareAddr(by[:]), "times", n)
	}
}

// Stats are counters since the start: frames sent, and claims of others heard.
func (a *Announcer) Stats() (sent, conflicts uint64) { return a.sent.Load(), a.conflicts.Load() }

func (a *Announcer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, p := range a.ports {
		p.close()
		delete(a.ports, name)
	}
	a.bursts = nil
}

func (a *Announcer) log() *slog.Logger {
	if a.Log == nil {
		return slog.Default()
	}
	return a.Log
}
