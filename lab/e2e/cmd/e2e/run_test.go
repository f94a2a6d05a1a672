package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// suiteScript behaves as the suite does for one spec: it writes a report with
// the spec named in the focus and another that the focus left out, and ends
// as the spec's own name says.
const suiteScript = `#!/bin/sh
for a; do case $a in
--report-dir=*) dir=${a#*=} ;;
--ginkgo.focus=*) name=${a#*=} ;;
esac; done
name=$(printf %s "$name" | sed 's/\\//g; s/[$]$//')
end() {
	cat >"$dir/junit_01.xml" <<X
<testsuites><testsuite name="s">
<testcase name="[SynchronizedBeforeSuite]" classname="s" status="$3" time="0.1">$4</testcase>
<testcase name="[It] other" classname="s" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] $name" classname="s" status="$1" time="2.5">$2</testcase>
</testsuite></testsuites>
X
}
skipped='<skipped message="skipped"></skipped>'
case $name in
*passes*) end passed "" passed "" ;;
*fails*) end failed "<failure type='failed'>no answer</failure>" passed ""; exit 1 ;;
*skips*) end skipped '<skipped message="skipped - needs two zones"></skipped>' passed "" ;;
*setup*) end skipped "$skipped" failed "<failure>nodes not ready</failure>"; exit 1 ;;
*absent*) name=else; end passed "" passed "" ;;
*crash*) exit 2 ;;
*hangs*) trap 'exit 130' INT; sleep 60 & wait ;;
esac
`

func testRunner(t *testing.T, parallel int) *runner {
	t.Helper()
	dir := t.TempDir()
	suite := filepath.Join(dir, "suite")
	if err := os.WriteFile(suite, []byte(suiteScript), 0o755); err != nil {
		t.Fatal(err)
	}
	return &runner{enter: []string{"/usr/bin/env"}, suite: suite, dir: dir,
		parallel: parallel, limit: time.Minute, out: io.Discard}
}

func specs(names ...string) []Spec {
	var out []Spec
	for _, n := range names {
		out = append(out, Spec{Name: "[sig-network] Services " + n + " (a.b) [Conformance]", Stage: "services"})
	}
	return out
}

func TestRunnerStates(t *testing.T) {
	cases := []struct {
		name, message string
		state         State
	}{
		{"passes", "", Passed},
		{"fails", "no answer", Failed},
		{"skips", "needs two zones", Skipped},
		{"setup", "nodes not ready", Failed},
		{"absent", "does not contain it", Failed},
		{"crash", "exit status 2", Failed},
	}
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	results := testRunner(t, 3).run(context.Background(), specs(names...))
	for i, c := range cases {
		r := results[i]
		if r.State != c.state || !strings.Contains(r.Message, c.message) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, r.State, r.Message, c.state, c.message)
		}
		if c.state == Passed && r.Seconds != 2.5 {
			t.Errorf("%s: %v s, want the spec's own 2.5", c.name, r.Seconds)
		}
	}
	file := filepath.Join(t.TempDir(), "junit.xml")
	if err := writeJUnit(file, results); err != nil {
		t.Fatal(err)
	}
	if r := readResult(file, results[0].Spec, nil); r.State != Failed {
		t.Error("a merged report has no [It] names; reading one back must not pass")
	}
}

func TestRunnerInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	results := testRunner(t, 1).run(ctx, specs("hangs", "passes"))
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %s to stop", took)
	}
	if results[0].State != Unfinished || results[1].State != Unfinished {
		t.Errorf("got %s and %s, want both unfinished", results[0].State, results[1].State)
	}
	if verdict(results) == nil {
		t.Error("a run cut short was called good")
	}
}

func TestRunnerFailFast(t *testing.T) {
	r := testRunner(t, 1)
	r.failFast = true
	results := r.run(context.Background(), specs("fails", "passes", "passes"))
	if results[2].State != Unfinished {
		t.Errorf("the third spec is %s, want unfinished", results[2].State)
	}
}

func TestVerdict(t *testing.T) {
	cases := []struct {
		title  string
		states []State
		good   bool
	}{
		{"nothing", nil, false},
		{"only skipped", []State{Skipped}, false},
		{"passed and skipped", []State{Passed, Skipped}, true},
		{"one failed", []State{Passed, Failed}, false},
		{"one unfinished", []State{Passed, Unfinished}, false},
	}
	for _, c := range cases {
		var results []Result
		for _, s := range c.states {
			results = append(results, Result{State: s})
		}
		if err := verdict(results); (err == nil) != c.good {
			t.Errorf("%s: %v", c.title, err)
		}
	}
}

func TestTable(t *testing.T) {
	results := []Result{
		{Spec: specs("one")[0], State: Passed, Seconds: 12.34},
		{Spec: specs("two")[0], State: Skipped, Message: "needs two zones"},
	}
	notRun := specs("three")
	notRun[0].Reason = "SCTP: none"
	var out strings.Builder
	printTable(&out, results, notRun, time.Minute)
	for _, want := range []string{
		"passed       12.3  services    Services one (a.b)\n", "needs two zones", "not run (SCTP: none):\n  Services three",
		"1 passed, 0 failed, 1 skipped, 0 unfinished in 60 s; 1 not run",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, out.String())
		}
	}
}
