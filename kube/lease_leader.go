package kube

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaderLease is the name of the Lease of the one that writes status.
const leaderLease = "fairway-leader"

// Leader runs for the leadership until ctx ends and tells every change. The leader
// writes status and the cluster's events; nothing that forwards traffic waits for one.
// A dead leader is replaced after 5 to 6 seconds, a stopped one at once.
type Leader struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	ID        string // the node's name
	Changed   func(leading bool)
}

// Run returns when ctx ends and the Lease, if held, is given up.
func (l *Leader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		l.term(ctx)
		sleep(ctx, time.Second)
	}
}

// term is one candidacy, from waiting to losing.
func (l *Leader) term(ctx context.Context) {
	var mu sync.Mutex
	var leading, over bool
	start := func(context.Context) { // runs on a goroutine of its own, perhaps too late
		mu.Lock()
		defer mu.Unlock()
		if leading = !over; leading {
			l.Changed(true)
		}
	}
	end := func() {
		mu.Lock()
		defer mu.Unlock()
		if over = true; leading {
			leading = false
			l.Changed(false)
		}
	}
	// Writing ends before the Lease is given up.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { end(); cancel() })()
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: leaderLease, Namespace: l.Namespace},
			Client:     l.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.ID},
		},
		LeaseDuration: 5 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second,
		ReleaseOnCancel: true, Name: leaderLease,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: start, OnStoppedLeading: end},
	})
	if err != nil {
		return // only when the constants above were wrong
	}
	e.Run(inner)
}
