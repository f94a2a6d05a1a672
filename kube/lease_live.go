package kube

import (
	"context"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// liveness is what one node knows of all Leases. It holds no clock: every call says
// what time it is.
type liveness struct {
	self  string
	times LeaseTimes
	nodes map[string]sighting
	until time.Duration // own Lease, margin taken off
	since time.Duration // when this node last came back among the living
	// frozen is true while this node cannot judge others: its own Lease lapsed, or it
	// does not see even its own renewals.
	frozen bool
	live   map[string]bool
}

// sighting is when a Lease was last seen to change.
type sighting struct {
	stamp string
	at    time.Duration
	valid time.Duration
}

// see notes a Lease as the watch or list gave it.
func (l *liveness) see(node, stamp string, valid, now time.Duration) {
	if l.nodes == nil {
		l.nodes = map[string]sighting{}
	}
	if old, known := l.nodes[node]; known && old.stamp == stamp {
		return // seen again, not renewed
	}
	l.nodes[node] = sighting{stamp, now, valid}
}

// renewed notes an own renewal sent at some time, and says until when the node may act
// on it; false while it does not see what others write.
func (l *liveness) renewed(sent, now time.Duration) (time.Duration, bool) {
	until := sent + l.times.Duration - l.times.Margin
	if now >= l.until {
		l.frozen = true // it had lapsed: judge() starts over
	}
	l.until = max(l.until, until)
	return until, !l.blind(now)
}

// blind: the node's own renewals come back by the same watch as the others', so
// without them nothing can be said of the others.
func (l *liveness) blind(now time.Duration) bool {
	own, seen := l.nodes[l.self]
	return !seen || now >= own.at+l.times.Duration
}

// judge works the live set out anew and tells whether it changed.
func (l *liveness) judge(now time.Duration) bool {
	if now >= l.until || l.blind(now) {
		l.frozen = true
		return false
	}
	if l.frozen {
		// Back after an outage that may have been everybody's: all get the time of one
		// Lease to show themselves.
		l.frozen, l.since = false, now
		for n, s := range l.nodes {
			s.at = now
			l.nodes[n] = s
		}
	}
	live := map[string]bool{}
	for n, s := range l.nodes {
		if now < s.at+s.valid && (n != l.self || now >= l.since+l.times.Join) {
			live[n] = true
		}
	}
	changed := l.live == nil || !maps.Equal(l.live, live)
	l.live = live
	return changed
}

// evaluate judges ten times per Lease's pace and gives up a watch that went silent.
func (n *NodeLeases) evaluate(ctx context.Context) {
	for ctx.Err() == nil {
		n.mu.Lock()
		now := n.Now()
		changed := n.liveness.judge(now)
		own, seen := n.liveness.nodes[n.Node]
		silent := now-max(n.began, own.at) > 2*n.Times.Renew+n.Times.Margin
		if seen && now < n.liveness.until && silent && n.cancel != nil {
			n.cancel() // renewals are accepted but do not come back
			n.cancel = nil
		}
		n.mu.Unlock()
		if changed && n.Changed != nil {
			n.Changed()
		}
		sleep(ctx, n.Times.Renew/10)
	}
}

// watchAll lists and watches, again and again, at an even pace: waiting longer after
// each failure would leave the node blind long after the server is back.
func (n *NodeLeases) watchAll(ctx context.Context) {
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		n.mu.Lock()
		n.cancel, n.began = cancel, n.Now()
		n.mu.Unlock()
		n.watchOnce(one)
		cancel()
		sleep(ctx, n.Times.Renew/4)
	}
}

func (n *NodeLeases) watchOnce(ctx context.Context) {
	leases := n.Client.Leases(n.Namespace)
	selector := metav1.ListOptions{LabelSelector: nodeLeaseLabel}
	short, cancel := context.WithTimeout(ctx, n.Times.Duration)
	list, err := leases.List(short, selector)
	cancel()
	if err != nil {
		return
	}
	n.replace(list.Items)
	selector.ResourceVersion = list.ResourceVersion
	w, err := leases.Watch(ctx, selector)
	if err != nil {
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.ResultChan():
			if !open || !n.event(e) {
				return
			}
		}
	}
}

func (n *NodeLeases) replace(items []coordinationv1.Lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	there := map[string]bool{}
	for i := range items {
		there[n.seeLease(&items[i])] = true
	}
	maps.DeleteFunc(n.liveness.nodes, func(node string, _ sighting) bool { return !there[node] })
}

func (n *NodeLeases) event(e watch.Event) bool {
	l, ok := e.Object.(*coordinationv1.Lease)
	if !ok {
		return false // an error event: list again
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.Type == watch.Deleted {
		delete(n.liveness.nodes, nodeOf(l))
		return true
	}
	n.seeLease(l)
	return true
}

func (n *NodeLeases) seeLease(l *coordinationv1.Lease) string {
	valid := n.Times.Duration
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		valid = time.Duration(*s) * time.Second
	}
	var stamp string
	if l.Spec.HolderIdentity != nil && l.Spec.RenewTime != nil {
		stamp = *l.Spec.HolderIdentity + " " + l.Spec.RenewTime.Format(time.RFC3339Nano)
	}
	n.liveness.see(nodeOf(l), stamp, valid, n.Now())
	return nodeOf(l)
}

func nodeOf(l *coordinationv1.Lease) string {
	return l.Name[min(len(nodeLeasePrefix), len(l.Name)):]
}
