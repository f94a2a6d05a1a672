package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"fairway/kernel"
	"fairway/proxy"
)

// flowQueue holds stale UDP flows to delete off the loop: a node has thousands, and
// rules do not wait for them.
type flowQueue struct {
	mu   sync.Mutex
	list []proxy.Flow // a later Flow of the same destination takes an earlier one's place
	wake chan struct{}

	forget  func(ctx context.Context, flows []proxy.Flow, v6 bool) (int, error)
	observe func(v6 bool, deleted int, took time.Duration) // is told of each round
	again   time.Duration                                  // after a failure
}

func newFlowQueue(observe func(v6 bool, deleted int, took time.Duration)) *flowQueue {
	return &flowQueue{wake: make(chan struct{}, 1), forget: kernel.DeleteFlowsOf, observe: observe, again: 5 * time.Second}
}

func (q *flowQueue) add(flows []proxy.Flow) {
	if len(flows) == 0 {
		return
	}
	q.mu.Lock()
	q.list = append(q.list, flows...)
	q.mu.Unlock()
	q.ring()
}

func (q *flowQueue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *flowQueue) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.wake:
		}
		if q.round(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(q.again):
			q.ring()
		}
	}
}

// round deletes what is in the queue, and puts it back in front of what came meanwhile
// when it could not.
func (q *flowQueue) round(ctx context.Context) bool {
	q.mu.Lock()
	list := q.list
	q.list = nil
	q.mu.Unlock()
	done := true
	for _, v6 := range []bool{false, true} {
		start := time.Now()
		n, err := q.forget(ctx, list, v6)
		if err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrPermission) { // without rules there is none
			slog.Warn("stale UDP flows not deleted; trying again", "err", err)
			done = false
		}
		q.observe(v6, n, time.Since(start))
		slog.Debug("stale UDP flows deleted", "flows", n, "ipv6", v6)
	}
	if !done {
		q.mu.Lock()
		q.list = slices.Concat(list, q.list)
		q.mu.Unlock()
	}
	return done
}
