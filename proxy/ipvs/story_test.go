package ipvs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/story"
)

func TestStories(t *testing.T) {
	for _, s := range story.Glob(t, "testdata/*.txtar") {
		t.Run(filepath.Base(s.Path), func(t *testing.T) {
			s.Config = s.Config.WithMode(proxy.IPVS)
			plan, problems := s.Plan()
			if len(problems) > 0 {
				t.Error(story.Problems(problems))
			}
			got := Compile(nil, plan)
			s.Check(t, "rules", got.RuleText(false))
			s.Check(t, "services", got.ServiceText(false)+got.ServiceText(true))
			s.Check(t, "sets", elements(got, false)+elements(got, true))
			s.Check(t, "addrs", got.AddrText(false)+got.AddrText(true))
			trace := func(p packet.Packet) packet.Verdict { return got.Trace(p, localOf(s.Config)) }
			s.Check(t, "trace", s.Trace(trace))
			for _, p := range s.Packets {
				if a, b := trace(p), plan.Answer(p); !a.Equal(b) {
					t.Errorf("%s: rules say %s, the plan %s", p, a, b)
				}
			}
			if st := got.State(false); st.ReadSets(got.SetText(false)) != nil || len(Drift(st, got, Draining{})) > 0 {
				t.Errorf("what is printed is not read as it was meant: %q", Drift(st, got, Draining{}))
			}
			if s.Has("want-drain") {
				s.Check(t, "drain", drain(s, plan, got))
			}
		})
	}
}

// elements is the sets' elements alone.
func elements(p *Program, v6 bool) string {
	var out strings.Builder
	for _, l := range strings.SplitAfter(p.SetText(v6), "\n") {
		if strings.HasPrefix(l, "add ") {
			out.WriteString(l)
		}
	}
	return out.String()
}

// drain is what is done to virtual services when all endpoints go, and when they come
// back at once.
func drain(s *story.Story, plan *proxy.Plan, full *Program) string {
	o := s.Objects
	o.EndpointSlices = nil
	snap, _ := model.Build(nil, o)
	without, _ := proxy.New(plan, snap, plan.Config)
	none := Compile(full, without)
	draining := Draining{}
	var out strings.Builder
	for _, step := range [][2]*Program{{full, none}, {none, full}} {
		c := Diff(step[0], step[1], false, draining)
		ops := slices.Concat(c.Services, c.Removals)
		for _, op := range ops {
			out.WriteString(op.Text() + "\n")
		}
		draining.Note(c, ops)
		out.WriteString("\n")
	}
	return out.String()
}
