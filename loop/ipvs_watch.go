package loop

import (
	"context"
	"errors"
	"time"

	"fairway/proxy"
	"fairway/proxy/ipvs"
)

// Watch looks every so often, until ctx ends, whether destinations on their way out have
// no connection left, and deletes those; and whether what was applied is still there.
// When it is not, Watch audits and tells repaired what was found missing.
func (b *IPVS) Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := b.Drain()
		intact, lookErr := b.intact(ctx)
		if err = errors.Join(err, lookErr); err != nil || !intact {
			drift, auditErr := b.Audit(ctx)
			if err = errors.Join(err, auditErr); ctx.Err() == nil && (len(drift) > 0 || err != nil) {
				repaired(drift, err)
			}
		}
	}
}

// Drain deletes the destinations whose last connection has ended (kube-proxy looks every
// minute).
func (b *IPVS) Drain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, f := range b.families {
		errs = append(errs, f.drain())
	}
	return errors.Join(errs...)
}

func (f *ipvsFamily) drain() error {
	var ops []ipvs.Op
	for key, addrs := range f.draining {
		have, err := f.hand.Destinations(key)
		if err != nil {
			return err
		}
		for a := range addrs {
			d, there := have[a]
			switch {
			case !there:
				f.draining.Forget(key, a)
			case d.Weight == 0 && d.Active+d.Inactive == 0:
				ops = append(ops, ipvs.Op{Verb: ipvs.DeleteDestination, Key: key, To: a})
			}
		}
	}
	return f.do(&ipvs.Change{}, ops)
}

// Draining counts the destinations on their way out.
func (b *IPVS) Draining() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, f := range b.families {
		for _, addrs := range f.draining {
			n += len(addrs)
		}
	}
	return n
}

func (b *IPVS) intact(ctx context.Context) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.families {
		if f.have == nil {
			continue
		}
		if ok, err := f.hand.Intact(ctx, f.v6, f.have.Bound(f.v6), f.have.Any(f.v6)); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// Counters sums what went through each ServicePort's virtual services. They begin anew
// when a virtual service is made again.
func (b *IPVS) Counters(context.Context) ([]Count, error) {
	counts, err := b.hand.Counts()
	if err != nil {
		return nil, err
	}
	sums := map[proxy.Key]*Count{}
	for key, owner := range b.owned() {
		c, there := counts[key]
		if !there {
			continue
		}
		if sums[owner] == nil {
			sums[owner] = &Count{Key: owner, Measured: true}
		}
		sums[owner].Connections += c.Connections
		sums[owner].BytesIn += c.BytesIn
		sums[owner].BytesOut += c.BytesOut
	}
	out := make([]Count, 0, len(sums))
	for _, c := range sums {
		out = append(out, *c)
	}
	return out, nil
}

// owned maps the virtual services of the last Program to whose they are.
func (b *IPVS) owned() map[ipvs.ServiceKey]proxy.Key {
	if m := b.owners.Load(); m != nil {
		return *m
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := map[ipvs.ServiceKey]proxy.Key{}
	if b.last != nil {
		m = b.last.Owners()
	}
	b.owners.Store(&m)
	return m
}
