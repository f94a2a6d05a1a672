package loop

import (
	"time"

	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// changes knows which Services and EndpointSlices differ from those whose rules are in
// force, for the metrics: how many wait, and how long an endpoint's change took to get
// into the rules. An object that did not change is the same pointer.
type changes struct {
	started  time.Time // changes from before this process are not its own to have delayed
	last     model.Objects
	services map[objectKey]*corev1.Service // waiting; nil is a deleted one
	slices   map[objectKey]*discoveryv1.EndpointSlice
}

type objectKey struct{ namespace, name string }

// see notes what differs from the objects of the pass before.
func (c *changes) see(o model.Objects, observe Observer) {
	if c.services == nil {
		c.started = time.Now()
		c.services, c.slices = map[objectKey]*corev1.Service{}, map[objectKey]*discoveryv1.EndpointSlice{}
	}
	newServices := differ(c.last.Services, o.Services, c.services)
	newSlices := differ(c.last.EndpointSlices, o.EndpointSlices, c.slices)
	c.last = o
	if observe != nil {
		observe.Changed(len(c.services), len(c.slices), newServices, newSlices)
	}
}

// applied notes that all of it is in force.
func (c *changes) applied(now time.Time, observe Observer) {
	if observe != nil {
		for _, s := range c.slices {
			if at, ok := triggered(s); ok && at.After(c.started) {
				observe.Programmed(s.AddressType == discoveryv1.AddressTypeIPv6, max(0, now.Sub(at)))
			}
		}
	}
	clear(c.services)
	clear(c.slices)
}

func triggered(s *discoveryv1.EndpointSlice) (time.Time, bool) {
	if s == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	return at, err == nil
}

// differ puts what is in one list and not, as the same pointer, in the other into out,
// and counts it. Lists are mostly in one order, so both are walked at once; from where
// they part, objects are looked up.
func differ[T any, P interface {
	*T
	metav1.Object
}](old, new []P, out map[objectKey]P) int {
	i := 0
	for i < len(old) && i < len(new) && old[i] == new[i] {
		i++
	}
	old, new = old[i:], new[i:]
	for len(old) > 0 && len(new) > 0 && old[len(old)-1] == new[len(new)-1] {
		old, new = old[:len(old)-1], new[:len(new)-1]
	}
	before := make(map[objectKey]P, len(old))
	for _, o := range old {
		before[keyOf(o)] = o
	}
	n := 0
	for _, o := range new {
		k := keyOf(o)
		if before[k] != o {
			out[k] = o
			n++
		}
		delete(before, k)
	}
	for k := range before {
		out[k] = nil
	}
	return n + len(before)
}

func keyOf(o metav1.Object) objectKey { return objectKey{o.GetNamespace(), o.GetName()} }
