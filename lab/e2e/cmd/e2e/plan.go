package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Spec is one test of the suite. Reason says why it is not run; it is empty
// for the specs that are.
type Spec struct {
	Name   string // full text, as ginkgo's focus matches it
	Stage  string
	Reason string
}

// Short is the spec's name without the marks that most of them share.
func (s Spec) Short() string {
	short := strings.NewReplacer(" [Conformance]", "", " [NodeConformance]", "", " [LinuxOnly]", "")
	return short.Replace(strings.TrimPrefix(s.Name, "[sig-network] "))
}

// stage is a group of specs that exercise one subject, by the start of their
// names after "[sig-network] ".
type stage struct {
	name     string
	prefixes []string
}

// stages lists the groups in the order they run: the ones that say most about
// a service proxy first, because a spec that fails costs minutes.
func stages() []stage {
	return []stage{
		{"services", []string{"Services "}},
		{"dns", []string{"DNS "}},
		{"api", []string{
			"EndpointSlice ", "EndpointSliceMirroring ", "Endpoints ", "EndpointsController ",
			"Ingress API ", "IngressClass ", "DefaultIngressClass ", "ServiceCIDR ", "API Server ",
		}},
		{"networking", []string{"Networking "}},
		{"rest", []string{""}},
	}
}

// shortSpecs is the two-minute subset for every change: one spec of each
// kind of traffic, and of each API that Fairway reads.
func shortSpecs() []string {
	return []string{
		"Services should serve a basic endpoint from pods",
		"Services should serve multiport endpoints from pods",
		"Services should be able to create a functioning NodePort service",
		"Services should be able to change the type from ExternalName to NodePort",
		"Services should have session affinity work for service with type clusterIP",
		"DNS should provide DNS for the cluster",
		"DNS should provide DNS for services",
		"DNS should provide DNS for ExternalName services",
		"EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service",
		"Ingress API should support creating Ingress API operations",
		"Networking Granular Checks: Pods should function for intra-pod communication: http",
		"HostPort validates that there is no conflict between pods with same hostPort but different hostIP and protocol",
	}
}

// choice is what the user asked to run.
type choice struct {
	stages      []string // names of stages, or "short", or "all"
	focus       *regexp.Regexp
	conformance bool  // only specs marked [Conformance]
	noSCTP      error // why SCTP cannot run here, nil when it can
}

// parseList returns the full names in the output of `e2e.test --list-tests`,
// whose lines read "    path/file.go:123: full name".
func parseList(output string) []string {
	line := regexp.MustCompile(`^\s+\S+\.go:\d+: (.*\S)\s*$`)
	var names []string
	for text := range strings.Lines(output) {
		if m := line.FindStringSubmatch(text); m != nil {
			names = append(names, m[1])
		}
	}
	return names
}

// plan picks the chosen specs, in stage order, and apart from them the Serial
// and SCTP ones that the choice covers but that are not run. An unknown stage
// or a spec of the short stage that the suite lacks is an error.
func plan(names []string, c choice) (run, notRun []Spec, err error) {
	if err := checkStages(c.stages); err != nil {
		return nil, nil, err
	}
	if err := checkShort(names); err != nil {
		return nil, nil, err
	}
	for _, st := range stages() {
		for _, name := range names {
			s, ok := newSpec(name)
			if !ok || s.Stage != st.name || !c.covers(s) {
				continue
			}
			s.Reason = c.reason(s)
			switch {
			case s.Reason != "":
				notRun = append(notRun, s)
			case !c.conformance || strings.Contains(name, "[Conformance]"):
				run = append(run, s)
			}
		}
	}
	return run, notRun, nil
}

// newSpec gives a [sig-network] spec its stage; ok is false for any other.
func newSpec(name string) (s Spec, ok bool) {
	rest, ok := strings.CutPrefix(name, "[sig-network] ")
	if !ok {
		return Spec{}, false
	}
	for _, st := range stages() {
		for _, p := range st.prefixes {
			if strings.HasPrefix(rest, p) {
				return Spec{Name: name, Stage: st.name}, true
			}
		}
	}
	return Spec{}, false
}

func (c choice) covers(s Spec) bool {
	if c.focus != nil && !c.focus.MatchString(s.Name) {
		return false
	}
	for _, name := range c.stages {
		if name == "all" || name == s.Stage || name == "short" && slices.Contains(shortSpecs(), s.Short()) {
			return true
		}
	}
	return false
}

func (c choice) reason(s Spec) string {
	switch {
	case strings.Contains(s.Name, "SCTP") && c.noSCTP != nil:
		return "SCTP: " + c.noSCTP.Error()
	case strings.Contains(s.Name, "[Serial]"):
		return "Serial: it changes the whole cluster, and other specs run beside it"
	}
	return ""
}

func checkStages(chosen []string) error {
	known := []string{"all", "short"}
	for _, st := range stages() {
		known = append(known, st.name)
	}
	for _, name := range chosen {
		if !slices.Contains(known, name) {
			return fmt.Errorf("stage %q: unknown, want one of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// checkShort notices a renamed spec, which would otherwise drop out of the
// short stage in silence.
func checkShort(names []string) error {
	for _, short := range shortSpecs() {
		if !slices.ContainsFunc(names, func(n string) bool { return Spec{Name: n}.Short() == short }) {
			return fmt.Errorf("short stage: the suite has no spec %q", short)
		}
	}
	return nil
}
