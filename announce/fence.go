package announce

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since boot, sleep of the machine included (CLOCK_BOOTTIME): a clock
// that only a reboot sets back, so that a node that slept knows it.
func Now() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // a kernel without it is older than 2.6.39; the fence then stays shut
	}
	return time.Duration(ts.Nano())
}

// Fence decides whether this node may answer at all. Other nodes take its addresses
// over when they see its Lease expire, so it must be silent before that, by its own
// clock and without anybody's help: Extend opens the fence up to a moment, and when
// nobody extends it, it is shut.
//
// When the API server is away from every node, all Leases expire and nobody takes
// over. Then silence helps nobody: after Quiet without hearing another station claim
// an address, the fence opens again for as long as Extend is missing for that reason
// (Unreachable). A frozen process falls out of that state by itself, as only Tick,
// called every TickEvery by a running process, keeps it up.
type Fence struct {
	// Quiet is how long to listen for other owners before holding on without a Lease;
	// 0 never holds on. It must be longer than a Lease's duration.
	Quiet time.Duration

	mu          sync.Mutex
	until       time.Duration
	unreachable bool
	shutSince   time.Duration // first Tick that found the Lease lapsed; 0 when it is not
	lastTick    time.Duration
	heldUntil   time.Duration
}

// TickEvery is the pace of Tick; a gap of five is taken for a freeze.
const TickEvery = 100 * time.Millisecond

// Extend lets the node answer until the given time since boot.
func (f *Fence) Extend(until time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until, f.unreachable = max(f.until, until), false
}

// Unreachable says that the Lease is not renewed because no API server answers, and
// not because somebody else was quicker.
func (f *Fence) Unreachable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unreachable = true
}

// Shut ends the permission at once (graceful stop).
func (f *Fence) Shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until, f.heldUntil, f.unreachable = 0, 0, false
}

// Leased tells whether the node holds its Lease, which is the normal case.
func (f *Fence) Leased(now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now < f.until
}

// Open tells whether the node may answer.
func (f *Fence) Open(now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now < f.until || now < f.heldUntil
}

// Tick moves the hold-on state along.
func (f *Fence) Tick(now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	froze := now-f.lastTick > 5*TickEvery
	f.lastTick = now
	switch {
	case now < f.until:
		f.shutSince, f.heldUntil = 0, 0
	case f.shutSince == 0 || froze || !f.unreachable || f.Quiet == 0:
		f.shutSince, f.heldUntil = now, 0
	case now-f.shutSince >= f.Quiet:
		f.heldUntil = now + 5*TickEvery
	}
}
