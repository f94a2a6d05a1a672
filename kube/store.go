package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// pointer is *T where T is an API type.
type pointer[T any] interface {
	*T
	metav1.Object
	DeepCopyInto(*T)
	runtime.Object
}

// store keeps the last object per key for one kind. A reflector writes it directly:
// a shared informer would keep a second copy and a queue nobody reads.
type store[T any, P pointer[T]] struct {
	name   string
	notify func()

	mu     sync.Mutex
	items  []P // sorted by key, so that every pass gets them in one order for free
	listed bool
}

type syncer interface{ synced() (string, bool) }

var _ cache.TransformingStore = (*store[corev1.Service, *corev1.Service])(nil)

func newStore[T any, P pointer[T]](name string, notify func()) *store[T, P] {
	return &store[T, P]{name: name, notify: notify}
}

func keyOf(o metav1.Object) model.Name {
	return model.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add keeps obj as the last known; an event that brings the version already held (as a
// relist does) changes nothing.
func (s *store[T, P]) Add(obj any) error {
	o, ok := obj.(P)
	if !ok {
		return fmt.Errorf("%s: unexpected %T", s.name, obj)
	}
	s.mu.Lock()
	same := s.put(o)
	s.mu.Unlock()
	if !same {
		s.notify()
	}
	return nil
}

// put stores o and tells whether that version was there already.
func (s *store[T, P]) put(o P) bool {
	i, known := s.find(keyOf(o))
	if !known {
		trim(o)
		s.items = slices.Insert(s.items, i, o)
		return false
	}
	old := s.items[i]
	if old.GetResourceVersion() == o.GetResourceVersion() && old.GetUID() == o.GetUID() {
		return true
	}
	trim(o)
	s.items[i] = o
	return false
}

func (s *store[T, P]) find(k model.Name) (int, bool) {
	return slices.BinarySearchFunc(s.items, k, func(o P, k model.Name) int { return keyOf(o).Compare(k) })
}

func (s *store[T, P]) Update(obj any) error { return s.Add(obj) }

func (s *store[T, P]) Delete(obj any) error {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o, ok := obj.(P)
	if !ok {
		return fmt.Errorf("%s: unexpected %T", s.name, obj)
	}
	s.remove(keyOf(o))
	return nil
}

func (s *store[T, P]) remove(k model.Name) {
	s.mu.Lock()
	i, known := s.find(k)
	if known {
		s.items = slices.Delete(s.items, i, i+1)
	}
	s.mu.Unlock()
	if known {
		s.notify()
	}
}

// Replace takes over a full list, keeping pointers of what did not change.
func (s *store[T, P]) Replace(list []any, _ string) error {
	s.mu.Lock()
	seen := make(map[model.Name]bool, len(list))
	for _, obj := range list {
		if o, ok := obj.(P); ok {
			seen[keyOf(o)] = true
			s.put(o)
		}
	}
	s.items = slices.DeleteFunc(s.items, func(o P) bool { return !seen[keyOf(o)] })
	s.listed = true
	s.mu.Unlock()
	s.notify()
	return nil
}

func (s *store[T, P]) Resync() error { return nil }

// Transformer lets a reflector trim each object of a first list as it arrives, not all
// when the last one has.
func (s *store[T, P]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		trim(obj)
		return obj, nil
	}
}

func (s *store[T, P]) synced() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name, s.listed
}

func (s *store[T, P]) list() []P {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.items)
}

// single lets a reflector of one name share a kind's store.
type single struct {
	cache.ReflectorStore
	name   model.Name
	stop   context.CancelFunc
	notify func()
	listed atomic.Bool
}

type remover interface{ remove(model.Name) }

func (s *single) Replace(list []any, _ string) error {
	if len(list) == 0 {
		s.ReflectorStore.(remover).remove(s.name)
	} else if err := s.Add(list[0]); err != nil {
		return err
	}
	if !s.listed.Swap(true) {
		s.notify()
	}
	return nil
}
