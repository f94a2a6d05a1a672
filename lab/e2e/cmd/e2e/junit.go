package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
)

// The part of the JUnit format that ginkgo writes and this program reads, and
// writes again for the whole run.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     float64     `xml:"time,attr"` // seconds
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Status  string        `xml:"status,attr"`
		Time    float64       `xml:"time,attr"` // seconds
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Error   *junitMessage `xml:"error,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// State is how a spec ended.
type State string

// The states of a spec. A spec that skips itself is skipped; one that the end
// of the run kept from starting or interrupted is unfinished.
const (
	Passed     State = "passed"
	Failed     State = "failed"
	Skipped    State = "skipped"
	Unfinished State = "unfinished"
)

// Result is a spec's end. Seconds is the spec's own time, without the start
// of the process around it.
type Result struct {
	Spec    Spec
	State   State
	Seconds float64
	Message string // why it failed or skipped itself
	Log     string // file with everything the spec printed
}

// readResult finds the spec in the report of a process that ran it alone.
// exit is that process's error, if any: a failure around the spec, such as of
// the suite's set-up, must not pass for a skipped or a passed spec.
func readResult(file string, s Spec, exit error) Result {
	r := Result{Spec: s, State: Unfinished, Message: "the suite does not contain it"}
	data, err := os.ReadFile(file)
	if err != nil {
		r.State, r.Message = Failed, fmt.Sprintf("no report (%v); the process: %v", err, exitText(exit))
		return r
	}
	var report junitSuites
	if err := xml.Unmarshal(data, &report); err != nil {
		r.State, r.Message = Failed, fmt.Sprintf("%s: %v", file, err)
		return r
	}
	around := ""
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			_, name, _ := strings.Cut(c.Name, "] ") // "[It] full name"
			if name == s.Name {
				r.State, r.Message = caseState(c)
				r.Seconds = c.Time
			} else if state, message := caseState(c); state == Failed && around == "" {
				around = c.Name + ": " + message
			}
		}
	}
	if r.State == Unfinished || exit != nil && r.State != Failed {
		r.State, r.Message = Failed, strings.TrimSpace(around+"\n"+r.Message+"\n"+exitText(exit))
	}
	return r
}

// caseState reads one test case. "skipped" without a reason means that the
// focus left it out or that the suite's set-up failed before it.
func caseState(c junitCase) (State, string) {
	switch {
	case c.Failure != nil:
		return Failed, c.Failure.Message + c.Failure.Text
	case c.Error != nil:
		return Failed, c.Error.Message + c.Error.Text
	case c.Skipped == nil && c.Status == "passed":
		return Passed, ""
	case c.Skipped != nil && strings.HasPrefix(c.Skipped.Message, "skipped - "):
		return Skipped, strings.TrimPrefix(c.Skipped.Message, "skipped - ")
	}
	return Unfinished, "the suite left it out"
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// writeJUnit writes the whole run as one report.
func writeJUnit(file string, results []Result) error {
	suite := junitSuite{Name: "[sig-network]", Tests: len(results)}
	for _, r := range results {
		c := junitCase{Name: r.Spec.Name, Class: r.Spec.Stage, Status: string(r.State), Time: r.Seconds}
		suite.Time += r.Seconds
		switch r.State {
		case Failed:
			suite.Failures++
			c.Failure = &junitMessage{Text: r.Message}
		case Skipped, Unfinished:
			suite.Skipped++
			c.Skipped = &junitMessage{Message: string(r.State) + " - " + r.Message}
		case Passed:
		}
		suite.Cases = append(suite.Cases, c)
	}
	data, err := xml.MarshalIndent(junitSuites{Suites: []junitSuite{suite}}, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte(xml.Header), data...), 0o644)
}
