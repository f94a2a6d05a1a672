package ipvs

import (
	"testing"

	"fairway/test/story"
)

// TestMarksAndAffinity: no service of a mark keeps clients by -p, with which the kernel
// translates no ports; those of addresses do.
func TestMarksAndAffinity(t *testing.T) {
	s := story.Load(t, "../testdata/affinity.txtar")
	s.Objects.Services[0].Spec.ExternalTrafficPolicy = "Local"
	plan, _ := s.Plan()
	marks, addresses := 0, 0
	for _, f := range Compile(nil, plan).families {
		for _, p := range f.parts {
			for _, svc := range f.set.services(p) {
				switch {
				case svc.Key.Mark == 0 && svc.Persist > 0:
					addresses++
				case svc.Key.Mark == 0:
				case svc.Persist > 0 || !byClient(svc.Scheduler):
					t.Errorf("%s %s", svc.Key.Text(), svc.Options.Text())
				default:
					marks++
				}
			}
		}
	}
	if marks == 0 || addresses == 0 {
		t.Errorf("%d services of marks and %d of addresses keep their clients", marks, addresses)
	}
}
