package iptables

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/story"
)

// localOf is what the kernel of a plan's node would say of an address.
func localOf(cfg proxy.Config) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return a.IsLoopback() || slices.Contains(cfg.LocalAddrs, a) || slices.Contains(cfg.NodeIPs, a)
	}
}

func TestStories(t *testing.T) {
	stories := append(story.Glob(t, "testdata/*.txtar"), story.Glob(t, "testdata/own/*.txtar")...)
	for _, s := range stories {
		t.Run(filepath.Base(s.Path), func(t *testing.T) {
			s.Config = s.Config.WithMode(proxy.IPTables)
			plan, problems := s.Plan()
			if len(problems) > 0 {
				t.Error(story.Problems(problems))
			}
			got := Compile(nil, plan, Options{})
			s.Check(t, "program", got.Text(false))
			s.Check(t, "rules", added(t, s.Config, got))
			trace := func(p packet.Packet) packet.Verdict { return got.Trace(p, localOf(s.Config)) }
			s.Check(t, "trace", s.Trace(trace))
			for _, p := range s.Packets {
				if a, b := trace(p), plan.Answer(p); !a.Equal(b) {
					t.Errorf("%s: rules say %s, the plan %s", p, a, b)
				}
			}
		})
	}
}

// added is what the Services of a story add to an empty node, family by family.
func added(t *testing.T, cfg proxy.Config, got *Program) string {
	t.Helper()
	snap, _ := model.Build(nil, model.Objects{})
	plan, _ := proxy.New(nil, snap, cfg)
	empty := Compile(nil, plan, Options{})
	var out strings.Builder
	for _, v6 := range []bool{false, true} {
		base := strings.Split(empty.Text(v6), "\n")
		var lines []string
		for _, l := range strings.Split(got.Text(v6), "\n") {
			if !slices.Contains(base, l) && !strings.HasPrefix(l, ":") {
				lines = append(lines, l)
			}
		}
		if v6 && len(lines) > 0 {
			out.WriteString("# IPv6\n")
		}
		out.WriteString(strings.Join(append(lines, ""), "\n"))
	}
	return out.String()
}
