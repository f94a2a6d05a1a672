package dns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairway/dns"
	"fairway/model"
	"fairway/test/story"
)

// Sections of a story here: objects.yaml, Corefile (kubeadm's without one), options
// (complete-svc), queries (NAME TYPE), lookups (NAME NAMESPACE), and want-zone,
// want-reply, want-why, want-trace, want-problems.
func TestStories(t *testing.T) {
	for _, s := range story.Glob(t, "testdata/*.txtar") {
		t.Run(strings.TrimPrefix(s.Path, "testdata/"), func(t *testing.T) {
			cfg, problems := storyConfig(s)
			snap, more := s.Snapshot()
			zone, found := dns.Build(nil, snap, cfg)
			problems = slices.Concat(problems, more, found)
			s.Check(t, "zone", zone.Text())
			s.Check(t, "reply", replies(t, zone, s.Section("queries"), false))
			s.Check(t, "why", replies(t, zone, s.Section("queries"), true))
			s.Check(t, "trace", walks(t, zone, s.Section("lookups")))
			s.Check(t, "problems", story.Problems(problems))
			shuffled(t, s, zone, cfg)
		})
	}
}

// shuffled builds the same objects in other orders and by detours: the zone must be
// the same.
func shuffled(t *testing.T, s *story.Story, want *dns.Zone, cfg dns.Config) {
	t.Helper()
	for seed := range uint64(3) {
		objects := s.Shuffled(seed)
		half := objects
		half.Services = half.Services[:len(half.Services)/2]
		half.EndpointSlices = half.EndpointSlices[:len(half.EndpointSlices)/2]
		snap, _ := model.Build(nil, half)
		zone, _ := dns.Build(nil, snap, cfg)
		snap, _ = model.Build(snap, objects)
		zone, _ = dns.Build(zone, snap, cfg)
		if d := dns.Diff(want, zone); len(d) > 0 {
			t.Errorf("order of events matters, seed %d:\n%s", seed, strings.Join(d, "\n"))
		}
	}
}

func storyConfig(s *story.Story) (dns.Config, []model.Problem) {
	cfg, problems := dns.DefaultConfig(), []model.Problem(nil)
	if s.Has("Corefile") {
		cfg, _, problems = dns.ParseCorefile(s.Section("Corefile"))
	}
	cfg.CompleteSvc = strings.Contains(s.Section("options"), "complete-svc")
	return cfg, problems
}

// replies answers each query; with why it prints the steps instead of the records.
func replies(t *testing.T, z *dns.Zone, queries string, why bool) string {
	var b strings.Builder
	for _, line := range lines(queries) {
		name, typ, _ := strings.Cut(line, " ")
		q := dns.Question{Name: name}
		var err error
		if q.Type, err = dns.ParseType(strings.TrimSpace(typ)); err != nil {
			t.Fatal(err)
		}
		r := z.Explain(q)
		fmt.Fprintf(&b, "; %s => %s\n", line, status(r))
		if why {
			for _, s := range r.Steps {
				fmt.Fprintf(&b, "%s: %s\n", s.Where, s.What)
			}
			continue
		}
		printSection(&b, "", r.Answer)
		printSection(&b, "authority ", r.Authority)
		printSection(&b, "additional ", r.Additional)
	}
	return b.String()
}

func status(r dns.Reply) string {
	switch {
	case r.NotOurs:
		return "forward"
	case r.Chase != "":
		return "then forward " + r.Chase
	case r.Rcode == dns.NoError && len(r.Answer) == 0:
		return "NODATA"
	}
	return r.Rcode.String()
}

func printSection(b *strings.Builder, prefix string, records []dns.Record) {
	for _, r := range records {
		if r.Type == dns.TypeSOA && prefix != "" {
			fmt.Fprintf(b, "%sSOA %s %d\n", prefix, r.Name, r.TTL)
			continue
		}
		fmt.Fprintf(b, "%s%s\n", prefix, r)
	}
}

func walks(t *testing.T, z *dns.Zone, lookups string) string {
	var b strings.Builder
	for _, line := range lines(lookups) {
		name, namespace, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("lookup %q: want NAME NAMESPACE", line)
		}
		w := z.Trace(name, z.Search(namespace), dns.NDots)
		fmt.Fprintf(&b, "; %s from %s\n", name, namespace)
		for _, s := range w.Steps() {
			fmt.Fprintf(&b, "%s: %s\n", s.Where, s.What)
		}
	}
	return b.String()
}

func lines(text string) []string {
	var out []string
	for _, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return out
}
