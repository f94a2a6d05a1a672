package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairway/proxy/ipvs"
)

const (
	// handshake is how long what was sent to IPVS before another mode took over may be
	// under way, lingers how long established connections are waited for at most, and
	// lookEvery the time between two looks.
	handshake = 200 * time.Millisecond
	lingers   = 2 * time.Second
	lookEvery = 50 * time.Millisecond
)

// Cleanup removes everything of ours and of a kube-proxy in IPVS mode. Connections that
// are just being made, or are about to end, are let end first: nobody else knows how
// theirs are translated. What goes on is cut.
func (b *IPVS) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	until := time.Now().Add(lingers)
	for _, f := range b.families {
		f.have = nil
		clear(f.draining)
		if err := f.cleanup(ctx, until); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", familyName(f.v6), err))
		}
	}
	return errors.Join(append(errs, b.hand.RemoveDevice())...)
}

func (f *ipvsFamily) cleanup(ctx context.Context, until time.Time) error {
	listed, err := f.hand.List(ctx, f.v6)
	if err != nil {
		return err
	}
	c := ipvs.Removal(listed)
	if err := f.leave(ctx, listed, c, until); err != nil {
		return err
	}
	if err := f.hand.Rules(ctx, f.v6, c.Rules); err != nil {
		return err
	}
	if err := f.hand.Unbind(c.UnbindAddrs); err != nil {
		return err
	}
	if err := errors.Join(f.hand.Do(c.Removals)...); err != nil {
		return err
	}
	return f.hand.Sets(ctx, c.SetsAfter)
}

// leave waits for the connections of what c removes, and then lets conntrack forget them,
// so that what a client sends on is translated by who serves it now.
func (f *ipvsFamily) leave(ctx context.Context, listed *ipvs.State, c *ipvs.Change, until time.Time) error {
	others := map[netip.AddrPort]bool{}
	for key := range listed.Services {
		others[key.Addr] = true
	}
	var used []ipvs.ServiceKey
	for _, o := range c.Removals {
		delete(others, o.Key.Addr)
		if connections(listed.Services[o.Key].To) > 0 {
			used = append(used, o.Key)
		}
	}
	if len(used) == 0 {
		return nil
	}
	rest(ctx, handshake)
	for _, key := range used {
		for ; time.Now().Before(until) && ctx.Err() == nil; rest(ctx, lookEvery) {
			to, err := f.hand.Destinations(key)
			if err != nil {
				return err
			}
			if established(to) == 0 {
				break
			}
		}
	}
	_, err := f.hand.Forget(ctx, others)
	return err
}

func connections(to map[netip.AddrPort]ipvs.Destination) int {
	n := 0
	for _, d := range to {
		n += d.Active + d.Inactive
	}
	return n
}

// established counts less than connections: a connection that is being made, or that both
// ends have closed, is inactive to IPVS.
func established(to map[netip.AddrPort]ipvs.Destination) int {
	n := 0
	for _, d := range to {
		n += d.Active
	}
	return n
}
