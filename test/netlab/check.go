package netlab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fairway/packet"

	"golang.org/x/sys/unix"
)

// answer is how long a packet that should be answered may take on a busy machine;
// silence is how long one that should not is listened for.
const (
	answer  = 10 * time.Second
	silence = 300 * time.Millisecond
)

// CannotSend tells why a packet cannot be sent here, "" when it can.
func (lab *Lab) CannotSend(p packet.Packet) string {
	switch {
	case p.Proto == packet.SCTP:
		return "this kernel may have no SCTP sockets"
	case p.Local && lab.Host(p.Src) != lab.Node && !p.Src.IsLoopback():
		return "the node has no such address"
	case !p.Local && lab.Host(p.Src) == nil:
		return fmt.Sprintf("nobody can have the address %s", p.Src)
	case !p.Local && lab.Host(p.Src) == lab.Node:
		return "only a forged packet comes to the node from its own address"
	}
	return ""
}

// Check sends p until every choice of the verdict was seen, or once when there is none,
// and tells what was seen that is not in the verdict. A datagram goes once more in
// fragments.
func (lab *Lab) Check(p packet.Packet, want packet.Verdict) error {
	if want.Action != packet.Forward {
		wait := silence
		if want.Action == packet.Reject {
			wait = answer
		}
		return lab.once(p, want, wait)
	}
	seen := map[netip.AddrPort]bool{}
	for try := range 40 * len(want.Choices) {
		if try > 8 { // two clients in step take turns with a round robin's endpoints
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		}
		o, err := lab.Send(p, answer)
		if err != nil || !o.Agrees(p, want) {
			return fmt.Errorf("try %d: %s (%v)", try+1, o, err)
		}
		seen[o.Endpoint] = true
		if want.Affinity && try == 4 || len(seen) == len(want.Choices) && !want.Affinity {
			break
		}
	}
	if n := len(seen); want.Affinity && n != 1 || !want.Affinity && n != len(want.Choices) {
		return fmt.Errorf("reached %d endpoints", n)
	}
	if p.Proto != packet.UDP {
		return nil
	}
	o, err := lab.send(p, big, answer)
	for try := 0; try < 8 && errors.Is(err, unix.EMSGSIZE); try++ {
		// IPVS leads away from the loopback's MTU: a sender is first told of the path's.
		o, err = lab.send(p, big, answer)
	}
	if p.Local && p.Src.Is6() && errors.Is(err, unix.EMSGSIZE) {
		return nil // and IPv6 does not learn it for an address of the node itself, as IPVS' are
	}
	if err != nil || !o.Agrees(p, want) {
		return fmt.Errorf("in fragments: %s (%v)", o, err)
	}
	return nil
}

func (lab *Lab) once(p packet.Packet, want packet.Verdict, wait time.Duration) error {
	o, err := lab.Send(p, wait)
	if err != nil || !o.Agrees(p, want) {
		return fmt.Errorf("%s (%v)", o, err)
	}
	return nil
}

// Agrees tells whether what was seen of p is in the verdict.
func (o Observation) Agrees(p packet.Packet, want packet.Verdict) bool {
	switch want.Action {
	case packet.Forward:
		return o.Reached() && slices.ContainsFunc(want.Choices, func(c packet.Choice) bool {
			// The node masquerades its own packets to the address they have already.
			return c.Endpoint == o.Endpoint && (c.Masquerade == (o.Source != p.Src) || p.Local)
		})
	case packet.Reject:
		return o.Refused
	case packet.Drop:
		// A socket that is told at once was dropped no less.
		return !o.Reached() && !o.Refused && (o.NoRoute == "" || strings.Contains(o.NoRoute, unix.EPERM.Error()))
	}
	// Nobody's packet: it may find the address itself, and nobody else.
	return !o.Reached() || o.Endpoint == p.Dst && o.Source == p.Src
}

// CheckAll checks many packets side by side, since most of the time is waiting for
// silence: check(i) is called for each of n. Those of sticky verdicts come one after the
// other: what a client learns must not race.
func (lab *Lab) CheckAll(n int, sticky func(i int) bool, check func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	wg.Go(func() {
		for i := range n {
			if sticky(i) {
				check(i)
			}
		}
	})
	for i := range n {
		if sticky(i) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			check(i)
		})
	}
	wg.Wait()
}
