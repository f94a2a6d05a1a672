package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// silence is how long a watch may say nothing before it is asked for anew. An API server
// sends a bookmark about every minute, and ends a watch by itself within ten; one that does
// neither has forgotten it, or somebody in between has.
const silence = 5 * time.Minute

// hearing knows when the API server was last heard of each kind.
type hearing struct {
	silence time.Duration
	now     func() time.Time

	mu   sync.Mutex
	last map[string]time.Time
}

func newHearing(limit time.Duration) *hearing {
	return &hearing{silence: limit, now: time.Now, last: map[string]time.Time{}}
}

func (h *hearing) heard(resource string) {
	h.mu.Lock()
	h.last[resource] = h.now()
	h.mu.Unlock()
}

// age is how long ago the kind was heard of that is silent longest.
func (h *hearing) age() (resource string, age time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for r, at := range h.last {
		if d := now.Sub(at); d >= age {
			resource, age = r, d
		}
	}
	return resource, age
}

// Age tells of which kind the API server was not heard for the longest time, and how long.
// What is served is at most that old. It is 0 before the first list.
func (a *API) Age() (resource string, age time.Duration) {
	a.mu.Lock()
	h := a.hearing
	a.mu.Unlock()
	if h == nil {
		return "", 0
	}
	return h.age()
}

// listen passes a watch's events on, and ends it when none has come for too long: its
// reflector then asks for what has changed since. That a watch is opened says nothing yet.
func (h *hearing) listen(w watch.Interface, resource string) watch.Interface {
	l := &listener{Interface: w, out: make(chan watch.Event), stopped: make(chan struct{})}
	go l.run(h, resource)
	return l
}

type listener struct {
	watch.Interface
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (l *listener) ResultChan() <-chan watch.Event { return l.out }

func (l *listener) Stop() {
	l.once.Do(func() { close(l.stopped) })
	l.Interface.Stop()
}

func (l *listener) run(h *hearing, resource string) {
	defer close(l.out)
	defer l.Interface.Stop()
	for {
		timer := time.NewTimer(h.silence)
		select {
		case e, open := <-l.Interface.ResultChan():
			timer.Stop()
			if !open {
				return
			}
			if e.Type != watch.Error {
				h.heard(resource)
			}
			select {
			case l.out <- e:
			case <-l.stopped:
				return
			}
		case <-l.stopped:
			timer.Stop()
			return
		case <-timer.C:
			return
		}
	}
}
