package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"fairway/model"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// refusedAfter is how long the API server must go on forbidding a kind before it counts:
// one that has just started forbids everything for a moment.
const refusedAfter = 10 * time.Second

// refusals remembers which kinds the API server forbids. A kind that one role needs must
// not keep the others from their work.
type refusals struct {
	after   time.Duration
	changed func()
	hearing *hearing

	mu sync.Mutex
	at map[refusedRead]refusal
}

// refusedRead is what was forbidden; name is of a single object, else empty.
type refusedRead struct {
	resource, verb string
	name           model.Name
}

type refusal struct {
	since   time.Time
	counts  bool
	absent  bool // the server has no such kind, as an older one, which is nobody's problem
	message string
}

func newRefusals(after time.Duration, changed func()) *refusals {
	return &refusals{after: after, changed: changed, hearing: newHearing(silence), at: map[refusedRead]refusal{}}
}

// note takes the outcome of one request.
func (r *refusals) note(what refusedRead, err error) {
	if !r.update(what, err) {
		return
	}
	r.changed()
}

func (r *refusals) update(what refusedRead, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.at[what]
	if what.name == (model.Name{}) && apierrors.IsNotFound(err) {
		r.at[what] = refusal{counts: true, absent: true}
		return !old.counts
	}
	if !apierrors.IsForbidden(err) {
		if err == nil {
			delete(r.at, what)
		}
		return err == nil && old.counts
	}
	if !known {
		old = refusal{since: time.Now()}
	}
	now := refusal{since: old.since, counts: time.Since(old.since) >= r.after, message: err.Error()}
	r.at[what] = now
	return now.counts && !old.counts
}

// count tells whether the kind (or the one object) has been forbidden long enough, or does
// not exist.
func (r *refusals) count(resource string, name model.Name) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, f := range r.at {
		if what.resource == resource && what.name == name && f.counts {
			return true
		}
	}
	return false
}

func (r *refusals) problems() []model.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []model.Problem
	for _, what := range slices.SortedFunc(maps.Keys(r.at), func(a, b refusedRead) int {
		return slices.Compare([]string{a.resource, a.name.String(), a.verb}, []string{b.resource, b.name.String(), b.verb})
	}) {
		if f := r.at[what]; f.counts && !f.absent {
			out = append(out, model.Problem{Object: model.Ref{Kind: "API", Name: model.Name{Name: what.resource}}, Reason: "Forbidden",
				Message: fmt.Sprintf("what was last known of them stays in force, changes are not seen; grant get, list and watch as deploy/fairway.yaml does: %s", f.message)})
		}
	}
	return out
}

// heard wraps a ListWatch so that refusals come to know what the server answers.
func (r *refusals) heard(lw *cache.ListWatch, resource string, name model.Name) *cache.ListWatch {
	list, watching := lw.ListWithContextFunc, lw.WatchFuncWithContext
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out, err := list(ctx, o)
			r.note(refusedRead{resource, "list", name}, err)
			if err == nil && name.Name == "" {
				r.hearing.heard(resource)
			}
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			out, err := watching(ctx, o)
			r.note(refusedRead{resource, "watch", name}, err)
			if err == nil && name.Name == "" {
				out = r.hearing.listen(out, resource)
			}
			return out, err
		},
	}
}

// essential are the kinds without which no role can do anything right.
func essential(resource string) bool {
	return resource == "services" || resource == "endpointslices" || resource == "nodes"
}
