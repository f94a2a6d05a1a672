package kube

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	nodeLeasePrefix = "fairway-node-"
	nodeLeaseLabel  = "fairway.io/node"
)

// LeaseTimes is the pace of node Leases. A node that dies is replaced between
// Duration-Renew and Duration after; the API server sees one write per node and Renew.
type LeaseTimes struct {
	Duration time.Duration // whole seconds, as the API keeps them
	Renew    time.Duration
	// Margin is how much earlier than others count it as lapsed a node counts its own
	// Lease as lapsed.
	Margin time.Duration
	// Join is how long a node that is new, or was away, waits before it counts itself
	// in: the others, who count it in at once, have then let go of what becomes its own.
	Join time.Duration
}

// DefaultLeaseTimes replace a dead node after 2 to 3 seconds.
func DefaultLeaseTimes() LeaseTimes {
	return LeaseTimes{Duration: 3 * time.Second, Renew: time.Second, Margin: 500 * time.Millisecond, Join: 500 * time.Millisecond}
}

// NodeLeases keeps this node's Lease and knows which nodes keep theirs.
//
// No two clocks are compared. A node counts its Lease from before it sent the renewal,
// the others from when they saw it, which is later; so a node always knows first that
// its Lease is over. The Lease is not given up when the process ends: a restart within
// Duration moves no address, and meanwhile the kernel's rules go on forwarding.
type NodeLeases struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	Node      string
	Times     LeaseTimes
	// Now is a clock that runs on while the machine sleeps.
	Now func() time.Duration
	// Extended tells until when (by Now) this node may answer for addresses.
	Extended func(until time.Duration)
	// Unreachable tells that a renewal failed because no API server answered.
	Unreachable func()
	// Changed is called when Live has changed.
	Changed func()

	mu       sync.Mutex
	liveness liveness
	cancel   context.CancelFunc // of the watch under way
	began    time.Duration      // of the watch under way
	id       string
	mine     *coordinationv1.Lease // as last seen by the renewer
}

// Live is the set of nodes that keep their Lease, this one included, and false before
// that is known. While this node has no Lease, or hears nothing, it is the last set
// known: it cannot tell then who else is gone.
func (n *NodeLeases) Live() (map[string]bool, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.liveness.live), n.liveness.live != nil
}

// Run keeps the Lease and follows the others' until ctx ends.
func (n *NodeLeases) Run(ctx context.Context) {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	n.id = n.Node + "_" + hex.EncodeToString(b)
	n.mu.Lock()
	n.liveness.self, n.liveness.times, n.liveness.frozen = n.Node, n.Times, true
	n.mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() { n.watchAll(ctx) })
	all.Go(func() { n.evaluate(ctx) })
	n.keep(ctx)
	all.Wait()
}

// keep renews at an even pace, and faster after a failure.
func (n *NodeLeases) keep(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		sent := n.Now()
		wait := n.Times.Renew
		if err := n.renew(ctx); err != nil {
			wait = n.Times.Renew / 4
			if !failing && ctx.Err() == nil {
				slog.Warn("node Lease not renewed", "node", n.Node, "error", err)
			}
			failing = true
			if unreachable(err) && n.Unreachable != nil {
				n.Unreachable()
			}
		} else {
			failing = false
			n.renewed(sent)
		}
		sleep(ctx, wait-(n.Now()-sent))
	}
}

func (n *NodeLeases) renewed(sent time.Duration) {
	n.mu.Lock()
	until, ok := n.liveness.renewed(sent, n.Now())
	n.mu.Unlock()
	if ok {
		n.Extended(until)
	}
}

// renew writes the Lease once. A conflict or a deleted object is read anew at once.
func (n *NodeLeases) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, (n.Times.Duration-n.Times.Margin)/2)
	defer cancel()
	var err error
	for range 3 {
		if err = n.write(ctx); err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
		n.mine = nil
	}
	return fmt.Errorf("%s/%s%s: Lease: %w", n.Namespace, nodeLeasePrefix, n.Node, err)
}

// write updates the Lease as last seen, or creates it.
func (n *NodeLeases) write(ctx context.Context) error {
	leases := n.Client.Leases(n.Namespace)
	if n.mine == nil {
		l, err := leases.Get(ctx, nodeLeasePrefix+n.Node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			l, err = leases.Create(ctx, n.fill(&coordinationv1.Lease{}), metav1.CreateOptions{})
			if err == nil {
				n.mine = l
			}
			return err
		}
		if err != nil {
			return err
		}
		n.mine = l
	}
	l, err := leases.Update(ctx, n.fill(n.mine.DeepCopy()), metav1.UpdateOptions{})
	if err == nil {
		n.mine = l
	}
	return err
}

// fill sets what a renewal writes. Times in the object are for people; nobody's
// decision compares them with a clock.
func (n *NodeLeases) fill(l *coordinationv1.Lease) *coordinationv1.Lease {
	now := metav1.NowMicro()
	l.Name, l.Namespace = nodeLeasePrefix+n.Node, n.Namespace
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[nodeLeaseLabel] = "true"
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != n.id {
		l.Spec.HolderIdentity, l.Spec.AcquireTime = &n.id, &now
	}
	seconds := int32((n.Times.Duration + time.Second - 1) / time.Second)
	l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &seconds, &now
	return l
}

// Leave gives the Lease up, so that the others take over at once (drain, cleanup). Run
// must have ended.
func (n *NodeLeases) Leave(ctx context.Context) error {
	err := n.Client.Leases(n.Namespace).Delete(ctx, nodeLeasePrefix+n.Node, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s/%s%s: Lease: %w", n.Namespace, nodeLeasePrefix, n.Node, err)
	}
	return nil
}

// unreachable tells errors of the way to the server (and of a server that cannot
// reach its own store) from answers.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= 500 || code == 429
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
