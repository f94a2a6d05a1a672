package proxy_test

import (
	"testing"

	"fairway/model"
	"fairway/proxy"
	"fairway/test/story"
)

func TestStories(t *testing.T) {
	for _, s := range story.Glob(t, "testdata/*.txtar") {
		t.Run(s.Path, func(t *testing.T) {
			plan, problems := s.Plan()
			s.Check(t, "plan", plan.Text())
			s.Check(t, "trace", s.Trace(plan.Answer))
			s.Check(t, "problems", story.Problems(problems))
			for seed := range uint64(5) {
				snap, _ := model.Build(nil, s.Shuffled(seed))
				again, _ := proxy.New(nil, snap, s.Config)
				if again.Text() != plan.Text() {
					t.Fatalf("order of objects changes the plan:\n%s\n%s", plan.Text(), again.Text())
				}
			}
		})
	}
}

// TestShares checks that what did not change keeps its pointer, the promise every
// backend's kept results rest on.
func TestShares(t *testing.T) {
	s := story.Load(t, "testdata/clusterip.txtar")
	snap, _ := s.Snapshot()
	plan, _ := proxy.New(nil, snap, s.Config)
	objects := s.Objects
	changed := objects.EndpointSlices[0].DeepCopy()
	changed.Endpoints = changed.Endpoints[:1]
	objects.EndpointSlices = append(objects.EndpointSlices[:0:0], objects.EndpointSlices...)
	objects.EndpointSlices[0] = changed
	snap2, _ := model.Build(snap, objects)
	plan2, _ := proxy.New(plan, snap2, s.Config)
	same, differ := 0, 0
	for i, sp := range plan2.Ports {
		if sp == plan.Ports[i] {
			same++
		} else {
			differ++
		}
	}
	if differ != 1 || same != len(plan.Ports)-1 {
		t.Fatalf("changed one Service: %d ports shared, %d new, want %d and 1", same, differ, len(plan.Ports)-1)
	}
}
