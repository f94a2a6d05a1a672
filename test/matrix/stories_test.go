package matrix

import (
	"testing"

	"fairway/test/story"
)

// TestStories: the rules of every mode do with the packets of every story what the Plan
// says, whichever room wrote the story down.
func TestStories(t *testing.T) {
	stories := append(story.Glob(t, "../../proxy/testdata/*.txtar"), story.Glob(t, "../../proxy/*/testdata/*.txtar")...)
	for _, m := range modes() {
		if m.rules == nil {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			packets := 0
			for _, s := range stories {
				cfg := s.Config
				s.Config = cfg.WithMode(m.proxy)
				if m.settings != nil {
					m.settings(&s.Config)
				}
				plan, _ := s.Plan()
				s.Config = cfg
				rules := m.rules(plan)
				for _, p := range s.Packets {
					packets++
					want, got := plan.Answer(p), rules.Trace(p, local(plan.Config))
					if !got.Equal(want) {
						t.Errorf("%s: %s in %q\nrules: %s\n%splan: %s\n%s", s.Path, p, p.In, got, steps(got), want, steps(want))
					}
				}
			}
			t.Logf("%s: %d packets of %d stories traced", m.name, packets, len(stories))
		})
	}
}
