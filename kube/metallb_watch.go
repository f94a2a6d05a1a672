package kube

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"fairway/model"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	// absentRetry is how often a custom resource that is not installed is asked for again.
	absentRetry = 2 * time.Second
	// absentTimes is how many answers "not found" in a row it takes to forget objects
	// already known: a server that has just started may give some.
	absentTimes = 5
)

// metallb follows MetalLB's two kinds. That they are not installed is a state like any
// other (there are no pools), not an error.
type metallb struct {
	pools *custom[model.Pool]
	ads   *custom[model.L2Advertisement]
}

// followMetalLB starts following; notify is called after every change.
func followMetalLB(ctx context.Context, client dynamic.Interface, refused *refusals, notify func()) *metallb {
	gv := schema.GroupVersion{Group: "metallb.io", Version: "v1beta1"}
	m := &metallb{
		pools: newCustom("ipaddresspools", notify, ReadPool),
		ads:   newCustom("l2advertisements", notify, ReadL2),
	}
	go m.pools.run(ctx, client, refused, gv)
	go m.ads.run(ctx, client, refused, gv)
	return m
}

// objects are the pools and advertisements in name order, the same pointers as long as
// their objects do not change.
func (m *metallb) objects() ([]*model.Pool, []*model.L2Advertisement, []model.Problem) {
	if m == nil {
		return nil, nil, nil
	}
	pools, p1 := m.pools.read()
	ads, p2 := m.ads.read()
	return pools, ads, append(p1, p2...)
}

// custom is one kind: the store a reflector fills and what was read from each object.
type custom[T any] struct {
	store *store[unstructured.Unstructured, *unstructured.Unstructured]
	parse func([]byte) (*T, []model.Problem)

	mu     sync.Mutex
	absent int // answers "not found" in a row
	kept   map[*unstructured.Unstructured]parsed[T]
}

type parsed[T any] struct {
	value    *T
	problems []model.Problem
}

func newCustom[T any](resource string, notify func(), parse func([]byte) (*T, []model.Problem)) *custom[T] {
	return &custom[T]{store: newStore[unstructured.Unstructured](resource, notify), parse: parse}
}

// synced is true once listed or known to be not installed.
func (c *custom[T]) synced() (string, bool) {
	c.mu.Lock()
	absent := c.absent > 0
	c.mu.Unlock()
	name, listed := c.store.synced()
	return name, listed || absent
}

// run alternates between asking whether the resource is there and a reflector's list
// and watch, which returns when the watch is lost for good.
func (c *custom[T]) run(ctx context.Context, all dynamic.Interface, refused *refusals, gv schema.GroupVersion) {
	client := all.Resource(gv.WithResource(c.store.name))
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			refused.note(refusedRead{resource: c.store.name, verb: "watch"}, err)
			return w, err
		},
	}
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, all), &unstructured.Unstructured{}, c.store, cache.ReflectorOptions{Name: c.store.name, Backoff: retry()})
	for ctx.Err() == nil {
		_, err := client.List(ctx, metav1.ListOptions{Limit: 1})
		refused.note(refusedRead{resource: c.store.name, verb: "list"}, err)
		switch {
		case apierrors.IsNotFound(err):
			c.setAbsent(true)
		case err == nil:
			_ = r.ListAndWatchWithContext(ctx) // whatever ended it, the next list tells
			c.setAbsent(false)
		}
		select {
		case <-ctx.Done():
		case <-time.After(absentRetry):
		}
	}
}

// setAbsent counts; objects are forgotten when the resource stays gone.
func (c *custom[T]) setAbsent(absent bool) {
	c.mu.Lock()
	c.absent++
	if !absent {
		c.absent = 0
	}
	first, gone := c.absent == 1, c.absent == absentTimes
	c.mu.Unlock()
	if _, listed := c.store.synced(); gone || first && !listed {
		_ = c.store.Replace(nil, "")
	}
}

func (c *custom[T]) read() ([]*T, []model.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := c.store.list()
	kept := make(map[*unstructured.Unstructured]parsed[T], len(items))
	var out []*T
	var problems []model.Problem
	for _, u := range items {
		p, known := c.kept[u]
		if !known {
			p = c.parseOne(u)
		}
		kept[u] = p
		if p.value != nil {
			out = append(out, p.value)
		}
		problems = append(problems, p.problems...)
	}
	c.kept = kept
	return slices.Clip(out), problems
}

func (c *custom[T]) parseOne(u *unstructured.Unstructured) parsed[T] {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return parsed[T]{}
	}
	v, problems := c.parse(raw)
	return parsed[T]{v, problems}
}
