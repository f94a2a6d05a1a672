package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// listing is what `e2e.test --list-tests` prints, with the given specs and all
// those of the short stage.
func listing(names ...string) string {
	text := "The following spec names can be used with 'ginkgo run --focus/skip':\n"
	for _, s := range shortSpecs() {
		names = append(names, "[sig-network] "+s+" [Conformance]")
	}
	for _, n := range names {
		text += "    test/e2e/network/x.go:12: " + n + "\n"
	}
	return text + "\n"
}

func shorts(specs []Spec) []string {
	var names []string
	for _, s := range specs {
		names = append(names, s.Short())
	}
	return names
}

func TestParseList(t *testing.T) {
	got := parseList("The following spec names …:\n    ../a/b.go:7: [sig-apps] Job x: y [Conformance]\n\n")
	if want := []string{"[sig-apps] Job x: y [Conformance]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlan(t *testing.T) {
	names := parseList(listing(
		"[sig-apps] Job one [Conformance]",
		"[sig-network] Proxy one [Conformance]",
		"[sig-network] Services not conformance",
		"[sig-network] Services alone [Serial] [Conformance]",
		"[sig-network] Networking SCTP pods [Feature:SCTPConnectivity]",
	))
	noSCTP := errors.New("no such protocol")
	cases := []struct {
		title       string
		choice      choice
		run, notRun []string
	}{
		{"one stage", choice{stages: []string{"rest"}, conformance: true},
			[]string{"Proxy one", shortSpecs()[11]}, nil},
		{"focus", choice{stages: []string{"all"}, conformance: true, focus: regexp.MustCompile("Proxy|Job")},
			[]string{"Proxy one"}, nil},
		{"beyond conformance", choice{stages: []string{"all"}, focus: regexp.MustCompile("not conf")},
			[]string{"Services not conformance"}, nil},
		{"serial", choice{stages: []string{"services"}, conformance: true, focus: regexp.MustCompile("alone")},
			nil, []string{"Services alone [Serial]"}},
		{"no SCTP", choice{stages: []string{"all"}, focus: regexp.MustCompile("SCTP"), noSCTP: noSCTP},
			nil, []string{"Networking SCTP pods [Feature:SCTPConnectivity]"}},
		{"SCTP", choice{stages: []string{"all"}, focus: regexp.MustCompile("SCTP")},
			[]string{"Networking SCTP pods [Feature:SCTPConnectivity]"}, nil},
		{"short", choice{stages: []string{"short"}, conformance: true}, shortSpecs(), nil},
	}
	for _, c := range cases {
		run, notRun, err := plan(names, c.choice)
		if err != nil {
			t.Fatal(err)
		}
		if got := shorts(run); !slices.Equal(got, c.run) {
			t.Errorf("%s: run %q, want %q", c.title, got, c.run)
		}
		if got := shorts(notRun); !slices.Equal(got, c.notRun) {
			t.Errorf("%s: not run %q, want %q", c.title, got, c.notRun)
		}
	}
}

func TestPlanStageOrder(t *testing.T) {
	run, _, err := plan(parseList(listing()), choice{stages: []string{"all"}, conformance: true})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range run {
		order = append(order, s.Stage)
	}
	want := "services dns api networking rest"
	if got := strings.Join(slices.Compact(order), " "); got != want {
		t.Errorf("stages run as %q, want %q", got, want)
	}
}

func TestPlanRefuses(t *testing.T) {
	if _, _, err := plan(parseList(listing()), choice{stages: []string{"nosuch"}}); err == nil {
		t.Error("an unknown stage was taken")
	}
	renamed := strings.Replace(listing(), shortSpecs()[0], "Services was renamed", 1)
	if _, _, err := plan(parseList(renamed), choice{stages: []string{"all"}}); err == nil {
		t.Error("a short spec that the suite lacks went unnoticed")
	}
}

func TestShort(t *testing.T) {
	s := Spec{Name: "[sig-network] HostPort works: udp [LinuxOnly] [Conformance] [NodeConformance] [Serial]"}
	if got, want := s.Short(), "HostPort works: udp [Serial]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
