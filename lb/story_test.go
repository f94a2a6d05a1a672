package lb_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairway/lb"
	"fairway/model"
	"fairway/test/story"
)

// TestStories runs testdata/*.txtar. Section `live` lists nodes that renew their Lease
// (without it all do), section `addresses` what want-trace asks about.
func TestStories(t *testing.T) {
	for _, s := range story.Glob(t, "testdata/*.txtar") {
		t.Run(s.Path, func(t *testing.T) {
			got := run(s, s.Objects)
			for name, text := range got {
				s.Check(t, name, text)
			}
			for seed := range uint64(5) {
				for name, text := range run(s, s.Shuffled(seed)) {
					if text != got[name] {
						t.Errorf("%s depends on the order of objects:\n%s---\n%s", name, text, got[name])
					}
				}
			}
		})
	}
}

func run(s *story.Story, o model.Objects) map[string]string {
	snap, _ := model.Build(nil, o)
	cfg := lb.Config{Classes: []string{"example.com/ours"}}
	res, problems := lb.Assign(snap, cfg)
	live := liveNodes(s)
	list, more := lb.Announce(snap, cfg, live)
	var trace strings.Builder
	for _, a := range strings.Fields(s.Section("addresses")) {
		fmt.Fprintf(&trace, "%s\n", a)
		for _, st := range lb.Trace(snap, cfg, live, "node1", netip.MustParseAddr(a)) {
			fmt.Fprintf(&trace, "  %s: %s\n", st.Where, st.What)
		}
	}
	return map[string]string{
		"lb": lb.Text(res, list), "diff": lb.DiffText(res), "trace": trace.String(),
		"problems": story.Problems(append(append(s.Problems[:len(s.Problems):len(s.Problems)], problems...), more...)),
	}
}

func liveNodes(s *story.Story) map[string]bool {
	if !s.Has("live") {
		return nil
	}
	live := map[string]bool{}
	for _, n := range strings.Fields(s.Section("live")) {
		live[n] = true
	}
	return live
}
