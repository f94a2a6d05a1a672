// Package kernel_test runs stories on the real kernel: a lab of network namespaces is
// made for each, a backend programs the node, every packet of the story is sent, and
// what becomes of it must be what the oracle says.
package kernel_test

import (
	"context"
	"os"
	"testing"
	"time"

	"fairway/loop"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"
	"fairway/test/story"
)

// mode is a backend under test.
type mode struct {
	name string
	// settings changes what the mode does not know in a story's configuration.
	settings func(*proxy.Config)
	open     func(t *testing.T, node *netlab.Host) loop.Backend
	// prepare readies the lab and says of packets what the mode must know; may be nil.
	prepare func(t *testing.T, lab *netlab.Lab, packets []packet.Packet)
	// list prints the node's rules without counters, handles or order of hash tables.
	list func(t *testing.T, node *netlab.Host) string
}

// answer is how long a packet that should be answered may take; silence is how long one
// that should not is listened for.
const (
	answer  = 3 * time.Second
	silence = 300 * time.Millisecond
)

func requireKernel(t *testing.T) {
	t.Helper()
	err := netlab.Missing()
	switch {
	case err == nil:
	case os.Getenv("FAIRWAY_REQUIRE_KERNEL") == "1":
		t.Fatalf("FAIRWAY_REQUIRE_KERNEL=1, but %v", err)
	default:
		t.Skip(err)
	}
}

// runStories runs every story with packets through the mode.
func runStories(t *testing.T, m mode) {
	requireKernel(t)
	stories := append(story.Glob(t, "testdata/*.txtar"), story.Glob(t, "../../proxy/testdata/*.txtar")...)
	stories = append(stories, story.Glob(t, "../../proxy/*/testdata/*.txtar")...) // every mode's own
	for _, s := range stories {
		t.Run(s.Path, func(t *testing.T) { runStory(t, m, s) })
	}
}

func runStory(t *testing.T, m mode, s *story.Story) {
	if m.settings != nil {
		m.settings(&s.Config)
	}
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	if m.prepare != nil {
		m.prepare(t, lab, s.Packets)
	}
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	first := m.list(t, lab.Node)
	apply(t, m.open(t, lab.Node), plan) // as after a restart
	if again := m.list(t, lab.Node); again != first {
		t.Errorf("applied twice, listed differently:\n--- first\n%s--- again\n%s", first, again)
	}
	sendAll(t, lab, plan, s.Packets)
	empty, _ := proxy.New(plan, emptySnapshot(), plan.Config)
	apply(t, b, empty)
	sendAll(t, lab, empty, s.Packets[:min(1, len(s.Packets))])
	if err := b.Cleanup(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := m.list(t, lab.Node); left != "" {
		t.Errorf("left after cleanup:\n%s", left)
	}
}

func apply(t *testing.T, b loop.Backend, plan *proxy.Plan) {
	t.Helper()
	problems, err := b.Apply(context.Background(), plan)
	if err != nil || len(problems) > 0 {
		t.Fatalf("apply: %v %v", err, problems)
	}
}

// sendAll sends the packets side by side: most of the time is waiting for silence.
func sendAll(t *testing.T, lab *netlab.Lab, plan *proxy.Plan, packets []packet.Packet) {
	t.Helper()
	sticky := func(i int) bool { return plan.Answer(packets[i]).Affinity }
	lab.CheckAll(len(packets), sticky, func(i int) {
		p := packets[i]
		if why := lab.CannotSend(p); why != "" {
			t.Logf("%s: not sent: %s", p, why)
			return
		}
		want := plan.Answer(p)
		if err := lab.Check(p, want); err != nil {
			t.Errorf("%s: %v, want %s", p, err, want)
		}
	})
}
