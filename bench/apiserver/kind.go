package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kind is one collection: the last encoded object per key, and the watches of it.
type kind struct {
	path, apiVersion, name string

	mu       sync.Mutex
	version  int64
	keys     []string // sorted, as etcd lists them
	objects  map[string]*encoded
	watchers map[chan event]string // with the one name it asked for, or none
}

// Object is an API object that knows its two encodings.
type Object interface {
	metav1.Object
	Marshal() ([]byte, error)
}

type event struct {
	name string
	what string // ADDED, MODIFIED, DELETED
	obj  *encoded
}

// watchQueue is how many events a client may be behind; the benchmark sends a few.
const watchQueue = 4096

func kinds() []*kind {
	all := []*kind{
		{path: "/api/v1/services", apiVersion: "v1", name: "Service"},
		{path: "/api/v1/nodes", apiVersion: "v1", name: "Node"},
		{path: "/api/v1/namespaces", apiVersion: "v1", name: "Namespace"},
		{path: "/api/v1/pods", apiVersion: "v1", name: "Pod"},
		{path: "/api/v1/configmaps", apiVersion: "v1", name: "ConfigMap"},
		{path: "/api/v1/secrets", apiVersion: "v1", name: "Secret"},
		{path: "/apis/discovery.k8s.io/v1/endpointslices", apiVersion: "discovery.k8s.io/v1", name: "EndpointSlice"},
		{path: "/apis/networking.k8s.io/v1/servicecidrs", apiVersion: "networking.k8s.io/v1", name: "ServiceCIDR"},
		{path: "/apis/networking.k8s.io/v1/ingresses", apiVersion: "networking.k8s.io/v1", name: "Ingress"},
		{path: "/apis/networking.k8s.io/v1/ingressclasses", apiVersion: "networking.k8s.io/v1", name: "IngressClass"},
	}
	for _, k := range all {
		k.version, k.objects, k.watchers = 1, map[string]*encoded{}, map[chan event]string{}
	}
	return all
}

// pathOf is the collection of an object; empty for one that is not served.
func pathOf(o Object) string {
	switch o.(type) {
	case *corev1.Service:
		return "/api/v1/services"
	case *corev1.Node:
		return "/api/v1/nodes"
	case *corev1.Namespace:
		return "/api/v1/namespaces"
	case *corev1.Pod:
		return "/api/v1/pods"
	case *discoveryv1.EndpointSlice:
		return "/apis/discovery.k8s.io/v1/endpointslices"
	case *networkingv1.ServiceCIDR:
		return "/apis/networking.k8s.io/v1/servicecidrs"
	}
	return ""
}

// Put adds or changes an object and tells the watches. o is given a resource version
// and a UID, and must not be changed afterwards.
func (s *Server) Put(o Object) error {
	k := s.kinds[pathOf(o)]
	if k == nil {
		return fmt.Errorf("%T %s/%s: kind is not served", o, o.GetNamespace(), o.GetName())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := o.GetNamespace() + "/" + o.GetName()
	k.version++
	o.SetResourceVersion(strconv.FormatInt(k.version, 10))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", k.version)))
	}
	e, err := encode(k, o)
	if err != nil {
		return err
	}
	what := "MODIFIED"
	if k.objects[key] == nil {
		what = "ADDED"
		i := sort.SearchStrings(k.keys, key)
		k.keys = slices.Insert(k.keys, i, key)
	}
	k.objects[key] = e
	k.tell(event{name: o.GetName(), what: what, obj: e})
	return nil
}

// Delete removes an object and tells the watches; o is what they are told was there.
func (s *Server) Delete(o Object) error {
	k := s.kinds[pathOf(o)]
	if k == nil {
		return fmt.Errorf("%T %s/%s: kind is not served", o, o.GetNamespace(), o.GetName())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := o.GetNamespace() + "/" + o.GetName()
	if k.objects[key] == nil {
		return fmt.Errorf("%s %s: not there", k.name, key)
	}
	k.version++
	o.SetResourceVersion(strconv.FormatInt(k.version, 10))
	e, err := encode(k, o)
	if err != nil {
		return err
	}
	delete(k.objects, key)
	i := sort.SearchStrings(k.keys, key)
	k.keys = slices.Delete(k.keys, i, i+1)
	k.tell(event{name: o.GetName(), what: "DELETED", obj: e})
	return nil
}

// tell hands an event to the watches; one that is too far behind is ended, and lists
// again. The lock is held.
func (k *kind) tell(e event) {
	for ch, name := range k.watchers {
		if name != "" && name != e.name {
			continue
		}
		select {
		case ch <- e:
		default:
			delete(k.watchers, ch)
			close(ch)
		}
	}
}

// held is what a client sees at one moment, in order.
func (k *kind) held(name string) ([]*encoded, int64) {
	out := make([]*encoded, 0, len(k.keys))
	for _, key := range k.keys {
		if e := k.objects[key]; name == "" || e.name == name {
			out = append(out, e)
		}
	}
	return out, k.version
}

func (k *kind) one(w http.ResponseWriter, enc encoding, name string) {
	k.mu.Lock()
	items, _ := k.held(name)
	k.mu.Unlock()
	if len(items) == 0 {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, k.name+" "+name)
		return
	}
	w.Header().Set("Content-Type", enc.contentType())
	_, _ = w.Write(enc.object(items[0]))
}

func (k *kind) list(w http.ResponseWriter, enc encoding, name string) {
	k.mu.Lock()
	items, version := k.held(name)
	k.mu.Unlock()
	w.Header().Set("Content-Type", enc.contentType())
	_, _ = w.Write(enc.listOf(k, items, version))
}

// watch streams events until the client goes away; with initial it first sends all
// there is, then a bookmark (KEP-3157).
func (k *kind) watch(w http.ResponseWriter, r *http.Request, enc encoding, name string, initial bool) {
	ch := make(chan event, watchQueue)
	k.mu.Lock()
	items, version := k.held(name)
	k.watchers[ch] = name
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.watchers, ch)
		k.mu.Unlock()
	}()
	w.Header().Set("Content-Type", enc.contentType()+";stream=watch")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	if initial {
		for _, e := range items {
			if _, err := w.Write(enc.event("ADDED", e)); err != nil {
				return
			}
		}
		if _, err := w.Write(enc.bookmark(k, version, true)); err != nil {
			return
		}
	}
	flush()
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		var frame []byte
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			k.mu.Lock()
			frame = enc.bookmark(k, k.version, false)
			k.mu.Unlock()
		case e, ok := <-ch:
			if !ok {
				return
			}
			frame = enc.event(e.what, e.obj)
		}
		if _, err := w.Write(frame); err != nil {
			return
		}
		flush()
	}
}
