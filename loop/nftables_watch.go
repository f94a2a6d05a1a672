package loop

import (
	"context"
	"time"
)

// longestQuiet is how long Watch lets others write before it compares again, when they
// never touched anything of ours.
const longestQuiet = 5 * time.Minute

// Watch looks every so often whether somebody else has written nftables rules, until
// ctx ends. Tables that are gone are put back at once; else the kernel is audited, the
// less often the longer others write and leave ours alone (a CNI plugin that writes all
// day). What was found missing is told to repaired.
func (b *NFTables) Watch(ctx context.Context, every time.Duration, repaired func(drift []string, err error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	w := nftWatch{b: b, every: every, quiet: every}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if drift, err, told := w.look(ctx, now); told {
				repaired(drift, err)
			}
		}
	}
}

type nftWatch struct {
	b            *NFTables
	every, quiet time.Duration
	suspect      bool      // somebody wrote, and nobody has compared since
	next         time.Time // the earliest next audit
}

// look is one tick; told is false when there is nothing to tell.
func (w *nftWatch) look(ctx context.Context, now time.Time) (drift []string, err error, told bool) {
	wrote, gone, err := w.b.foreign()
	if err != nil {
		return nil, err, true
	}
	w.suspect = w.suspect || wrote
	if !w.suspect || !gone && now.Before(w.next) {
		return nil, nil, false
	}
	drift, err = w.b.Audit(ctx)
	w.suspect = err != nil
	w.quiet = min(2*w.quiet, longestQuiet)
	if len(drift) > 0 || err != nil {
		w.quiet = w.every
	}
	w.next = now.Add(w.quiet)
	return drift, err, len(drift) > 0 || err != nil
}

func (b *NFTables) foreign() (wrote, gone bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.want == nil {
		return false, false, nil
	}
	return b.hand.Foreign(b.want.V4, b.want.V6)
}
