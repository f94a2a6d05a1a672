package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairway/model"

	"k8s.io/client-go/util/flowcontrol"
)

type taskKind string

const (
	serviceTask taskKind = "Service"
	ingressTask taskKind = "Ingress"
	eventTask   taskKind = "Event"
)

// task is one object to write. It carries a name, not a value: the value is looked up
// when its turn comes, so that only the latest is written.
type task struct {
	kind    taskKind
	name    model.Name
	problem model.Problem // of an event
	own     bool          // a Problem of this node, told whoever leads
}

func (t task) String() string {
	if t.kind == eventTask {
		return "Event for " + t.problem.Object.String()
	}
	return string(t.kind) + " " + t.name.String()
}

// queue hands out tasks in order, each once however often it was pushed; events wait
// behind statuses and for the rate limiter. The zero value is ready for use.
type queue struct {
	mu       sync.Mutex
	waiting  map[task]bool
	statuses []task
	events   []task
	wake     chan struct{}
}

func (q *queue) push(t task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.init()
	if q.waiting[t] {
		return
	}
	q.waiting[t] = true
	if t.kind == eventTask {
		q.events = append(q.events, t)
	} else {
		q.statuses = append(q.statuses, t)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) init() {
	if q.waiting == nil {
		q.waiting, q.wake = map[task]bool{}, make(chan struct{}, 1)
	}
}

// next waits for a task; false when ctx ended.
func (q *queue) next(ctx context.Context, limit flowcontrol.RateLimiter) (task, bool) {
	for ctx.Err() == nil {
		t, ok, limited := q.take(limit)
		if ok {
			return t, true
		}
		var again <-chan time.Time
		if limited {
			again = time.After(50 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-again:
		}
	}
	return task{}, false
}

func (q *queue) take(limit flowcontrol.RateLimiter) (t task, ok, limited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.init()
	switch {
	case len(q.statuses) > 0:
		t, q.statuses = q.statuses[0], q.statuses[1:]
	case len(q.events) > 0 && limit.TryAccept():
		t, q.events = q.events[0], q.events[1:]
	default:
		return task{}, false, len(q.events) > 0
	}
	delete(q.waiting, t)
	return t, true, false
}

// ledger is the Problems there are and which of them were told. A Problem that stays
// the same is told once; one that is resolved is forgotten, and told again when it
// comes back.
type ledger struct {
	now    map[model.Problem]bool
	order  []model.Problem
	told   map[model.Problem]bool
	logged map[model.Problem]bool
}

func (l *ledger) set(list []model.Problem) {
	l.now, l.order = make(map[model.Problem]bool, len(list)), l.order[:0]
	for _, p := range list {
		if !l.now[p] {
			l.now[p] = true
			l.order = append(l.order, p)
		}
	}
	for p := range l.told {
		if !l.now[p] {
			delete(l.told, p)
		}
	}
}

// untold returns what is to be told now and counts it as told.
func (l *ledger) untold() []model.Problem {
	if l.told == nil {
		l.told = map[model.Problem]bool{}
	}
	var out []model.Problem
	for _, p := range l.order {
		if !l.told[p] {
			l.told[p] = true
			out = append(out, p)
		}
	}
	return out
}

func (l *ledger) current(p model.Problem) bool { return l.now[p] }

// logChanges writes a line for each Problem that is new and each that is gone.
func logChanges(log *slog.Logger, l *ledger) {
	for p := range l.logged {
		if !l.now[p] {
			delete(l.logged, p)
			log.Info("resolved", "object", p.Object.String(), "reason", p.Reason)
		}
	}
	if l.logged == nil {
		l.logged = map[model.Problem]bool{}
	}
	for _, p := range l.order {
		if !l.logged[p] {
			l.logged[p] = true
			LogProblem(log, p)
		}
	}
}

// LogProblem writes the line of a Problem.
func LogProblem(log *slog.Logger, p model.Problem) {
	about := []any{"object", p.Object.String()}
	if p.Field != "" {
		about = append(about, "field", p.Field)
	}
	log.Warn(p.Message, append(about, "reason", p.Reason)...)
}

// wasLogged takes Problems for those of the log that have their line.
func (l *ledger) wasLogged(list []model.Problem) {
	if l.logged == nil {
		l.logged = map[model.Problem]bool{}
	}
	for _, p := range list {
		l.logged[p] = true
	}
}
