package userspace

import (
	"path/filepath"
	"strings"
	"testing"

	"fairway/packet"
	"fairway/proxy"
	"fairway/proxy/nftables"
	"fairway/test/story"
)

// TestStories: this room's own, and the Plan's for the oracle's sake. A story that is
// about a process without rules has the section want-listeners.
func TestStories(t *testing.T) {
	for _, s := range append(story.Glob(t, "testdata/*.txtar"), story.Glob(t, "../testdata/*.txtar")...) {
		t.Run(filepath.Base(s.Path), func(t *testing.T) {
			s.Config = s.Config.WithMode(proxy.Userspace)
			plan, _ := s.Plan()
			p := Compile(nil, plan, true, Carry{})
			base := Compile(nil, &proxy.Plan{Config: plan.Config}, true, Carry{})
			listeners, capture := Diff(base, p)
			s.Check(t, "userspace", strings.Join(listeners, ""))
			checkNames(t, p.Text()+strings.Join(OwnTable(capture.Lines()), "\n"))
			s.Check(t, "userspace-problems", story.Problems(p.Problems))
			for _, pkt := range s.Packets {
				got, want := p.Trace(pkt, localOf(plan.Config)), plan.Answer(pkt)
				if !got.Equal(want) {
					t.Errorf("%s\n got %s\nwant %s\n%v", pkt, got, want, got.Steps)
				}
			}
			s.Check(t, "userspace-trace", traceText(p, plan, s.Packets))
			alone := Compile(nil, plan, false, Carry{})
			s.Check(t, "listeners", alone.Text())
			s.Check(t, "listeners-problems", story.Problems(alone.Problems))
			s.Check(t, "listeners-trace", traceText(alone, plan, s.Packets))
		})
	}
}

// checkNames: the capture has tables of its own; those of the mode nftables must not be
// touched.
func checkNames(t *testing.T, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		for _, family := range []string{"ip ", "ip6 "} {
			if strings.Contains(line, family+nftables.TableName) && !strings.Contains(line, family+TableName) {
				t.Errorf("not in a table of this mode: %s", line)
			}
		}
	}
}

// traceText leaves the steps within the rules out: those are the nftables room's.
func traceText(p *Program, plan *proxy.Plan, packets []packet.Packet) string {
	out := ""
	for _, pkt := range packets {
		v := p.Trace(pkt, localOf(plan.Config))
		out += pkt.String() + " => " + v.String() + "\n"
		for _, s := range v.Steps {
			if !strings.HasPrefix(s.Where, "listener") {
				continue
			}
			out += "  " + s.Where + ": " + s.What + "\n"
		}
	}
	return out
}
