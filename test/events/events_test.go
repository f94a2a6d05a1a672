// Package events_test plays every story as it may come from an API server: events in any
// order, doubled, with older states and deletions between them, while one kernel write in
// ten fails. Whatever happened, the Plan, each mode's program and the kernel's rules end
// as if the last state had come at once.
package events_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/test/story"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
)

// event is a new state of an object, or its end.
type event struct {
	key    string
	object any
	gone   bool
}

// cluster holds the last state of every object, as a watch cache does.
type cluster map[string]any

func (c cluster) take(e event) {
	if e.gone {
		delete(c, e.key)
		return
	}
	c[e.key] = e.object
}

// objects lists the cluster in no order.
func (c cluster) objects() model.Objects {
	var o model.Objects
	for _, obj := range c {
		switch obj := obj.(type) {
		case *corev1.Service:
			o.Services = append(o.Services, obj)
		case *discoveryv1.EndpointSlice:
			o.EndpointSlices = append(o.EndpointSlices, obj)
		case *corev1.Node:
			o.Nodes = append(o.Nodes, obj)
		case *networkingv1.ServiceCIDR:
			o.ServiceCIDRs = append(o.ServiceCIDRs, obj)
		}
	}
	return o
}

// history is what may happen to one object before it is in its last state: nothing, an
// older state, a deletion; and doubles.
func history(r *rand.Rand, key string, last any, older ...any) []event {
	var out []event
	for range r.IntN(4) {
		switch n := r.IntN(len(older) + 2); {
		case n < len(older):
			out = append(out, event{key: key, object: older[n]})
		case n == len(older):
			out = append(out, event{key: key, object: last})
		default:
			out = append(out, event{key: key, gone: true})
		}
	}
	out = append(out, event{key: key, object: last})
	if r.IntN(3) == 0 {
		out = append(out, event{key: key, object: last})
	}
	return out
}

// events makes a story's, each object's in its order and all objects' mixed; a Service
// that is not in the story comes and goes as well.
func events(r *rand.Rand, o model.Objects) []event {
	var each [][]event
	for _, s := range o.Services {
		each = append(each, history(r, "service "+s.Namespace+"/"+s.Name, s, olderServices(s)...))
	}
	for _, s := range o.EndpointSlices {
		each = append(each, history(r, "slice "+s.Namespace+"/"+s.Name, s, olderSlices(s)...))
	}
	for _, n := range o.Nodes {
		old := n.DeepCopy()
		old.Labels = map[string]string{corev1.LabelTopologyZone: "elsewhere"}
		each = append(each, history(r, "node "+n.Name, n, old))
	}
	for _, c := range o.ServiceCIDRs {
		old := c.DeepCopy()
		old.Spec.CIDRs = []string{"10.112.0.0/16"}
		each = append(each, history(r, "range "+c.Name, c, old))
	}
	if len(o.Services) > 0 {
		guest := o.Services[r.IntN(len(o.Services))].DeepCopy()
		guest.Name, guest.UID = "guest", "guest" // claims what another has
		each = append(each, []event{{key: "guest", object: guest}, {key: "guest", gone: true}})
	}
	var out []event
	for len(each) > 0 {
		i := r.IntN(len(each))
		out = append(out, each[i][0])
		if each[i] = each[i][1:]; len(each[i]) == 0 {
			each = slices.Delete(each, i, i+1)
		}
	}
	return out
}

func olderServices(s *corev1.Service) []any {
	plain := s.DeepCopy()
	plain.Spec.Type, plain.Spec.ExternalIPs, plain.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, nil, ""
	plain.Spec.SessionAffinity, plain.Spec.InternalTrafficPolicy, plain.Status = "", nil, corev1.ServiceStatus{}
	for i := range plain.Spec.Ports {
		plain.Spec.Ports[i].NodePort = 0
	}
	before := s.DeepCopy() // deleted and made again under another address
	before.UID = types.UID("before-" + s.Name)
	before.Spec.ClusterIP, before.Spec.ClusterIPs = "10.96.99.9", nil
	sticky := s.DeepCopy()
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	sticky.Spec.Ports = slices.Clone(sticky.Spec.Ports)
	slices.Reverse(sticky.Spec.Ports)
	named := s.DeepCopy()
	named.Spec.Type, named.Spec.ExternalName, named.Spec.ClusterIP, named.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "www.example.com", "", nil
	return []any{plain, before, sticky, named}
}

func olderSlices(s *discoveryv1.EndpointSlice) []any {
	no, yes := false, true
	empty, fewer, ending, moved := s.DeepCopy(), s.DeepCopy(), s.DeepCopy(), s.DeepCopy()
	empty.Endpoints = nil
	fewer.Endpoints = fewer.Endpoints[:len(fewer.Endpoints)/2]
	for i := range ending.Endpoints {
		ending.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	}
	for i := range moved.Ports {
		if moved.Ports[i].Port != nil {
			port := *moved.Ports[i].Port + 1
			moved.Ports[i].Port = &port
		}
	}
	return []any{empty, fewer, ending, moved}
}

// TestEvents plays every story a few times in every mode.
func TestEvents(t *testing.T) {
	var stories []*story.Story
	for _, glob := range []string{"../../proxy/testdata/*.txtar", "../../proxy/*/testdata/*.txtar", "../kernel/testdata/*.txtar"} {
		stories = append(stories, story.Glob(t, glob)...)
	}
	for _, room := range rooms() {
		t.Run(room.name, func(t *testing.T) {
			faults := 0
			for i, s := range stories {
				cfg := s.Config.WithMode(room.mode)
				for seed := range uint64(6) {
					faults += play(t, room, s.Path, s.Objects, cfg, uint64(100*i)+seed)
				}
			}
			t.Logf("%s: %d stories, %d writes failed", room.name, len(stories), faults)
			if room.faulty && faults < 50 {
				t.Errorf("only %d writes failed", faults)
			}
		})
	}
}

// play applies events in batches and compares the end; it counts the writes that failed.
// Retries come with audits, as in the loop: what was refused is tried again by an audit.
func play(t *testing.T, room room, path string, o model.Objects, cfg proxy.Config, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 21))
	state := cluster{}
	side := room.open(seed)
	snap, _ := model.Build(nil, model.Objects{})
	plan, _ := proxy.New(nil, snap, cfg)
	list := events(r, o)
	for len(list) > 0 {
		n := min(len(list), 1+r.IntN(4))
		for _, e := range list[:n] {
			state.take(e)
		}
		list = list[n:]
		snap, _ = model.Build(snap, state.objects())
		plan, _ = proxy.New(plan, snap, cfg)
		side.apply(plan)
	}
	for try := 0; !side.apply(plan); try++ {
		if try == 50 {
			t.Fatalf("%s, seed %d: 50 retries were not enough", path, seed)
		}
		side.audit()
	}
	fresh, _ := model.Build(nil, o)
	want, _ := proxy.New(nil, fresh, cfg)
	if plan.Text() != want.Text() {
		t.Errorf("%s, seed %d: after all events the plan is\n%swant\n%s", path, seed, plan.Text(), want.Text())
	}
	if diff := side.differs(want); diff != "" {
		t.Errorf("%s, seed %d: after all events the rules differ\n%s", path, seed, diff)
	}
	return side.faults()
}
