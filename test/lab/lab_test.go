// Package lab runs the articles' stories in a lab: kubectl and real packets in, what a
// reader of the articles would see out. The lab is up already (test/lab.sh); its name
// and proxy mode come from the environment. Each story has a namespace of its own.
package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// stories is what the commands need to know.
type stories struct {
	bin  string // the repository's bin directory
	name string // of the lab
	mode string
}

func TestStories(t *testing.T) {
	s := &stories{name: os.Getenv("FAIRWAY_LAB"), mode: os.Getenv("FAIRWAY_LAB_MODE")}
	if s.name == "" {
		if os.Getenv("FAIRWAY_REQUIRE_LAB") == "1" && os.Getenv("FAIRWAY_LAB_SCRIPT") == "1" {
			t.Fatal("FAIRWAY_LAB names no lab")
		}
		t.Skip("no lab: run make test-lab, or set FAIRWAY_LAB and FAIRWAY_LAB_MODE to one that is up")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	s.bin = bin
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup:               s.setup,
		Condition: func(cond string) (bool, error) {
			if mode, ok := strings.CutPrefix(cond, "mode:"); ok {
				return s.mode == mode, nil
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"kubectl":  s.kubectl,
			"on":       s.on,
			"until":    s.until,
			"distinct": s.distinct,
			"same":     s.same,
			"set":      s.set,
			"fairway":  s.fairway,
			"steady":   s.steady,
		},
	})
}

// TestPending keeps the list of the articles' lines honest: a line is in a story or in
// the list of pending ones, never nowhere.
func TestPending(t *testing.T) {
	text := ""
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, f := range append(files, "pending.txt") {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	ids := regexp.MustCompile(`\b[ABC][0-9]{1,2}\b`).FindAllString(text, -1)
	for _, group := range []struct {
		letter string
		last   int
	}{{"A", 12}, {"B", 27}, {"C", 4}} {
		for i := 1; i <= group.last; i++ {
			if id := fmt.Sprint(group.letter, i); !slices.Contains(ids, id) {
				t.Errorf("line %s of the articles is in no story and not pending", id)
			}
		}
	}
}

func (s *stories) setup(e *testscript.Env) error {
	ns := "s-" + strings.TrimSuffix(filepath.Base(e.WorkDir), "")
	ns = strings.TrimPrefix(ns, "s-script-")
	e.Setenv("NS", ns)
	e.Setenv("HOME", e.WorkDir)
	if out, err := s.command(e.WorkDir, "fairway-lab", "--name", s.name, "kubectl", "create", "namespace", ns).CombinedOutput(); err != nil {
		return fmt.Errorf("namespace %s: %s", ns, out)
	}
	e.Defer(func() {
		s.command(e.WorkDir, "fairway-lab", "--name", s.name, "kubectl", "delete", "namespace", ns, "--wait=false").Run()
	})
	return nil
}

func (s *stories) command(dir, program string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	c := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	c.Cancel = func() error { cancel(); return c.Process.Kill() }
	c.Dir = dir
	return c
}

// argv turns a command of the script into one of the machine.
func (s *stories) argv(ts *testscript.TestScript, args []string) (string, []string) {
	lab := []string{"--name", s.name}
	switch args[0] {
	case "kubectl":
		rest := args[1:]
		if !slices.ContainsFunc(rest, func(a string) bool { return a == "-n" || a == "-A" || strings.HasPrefix(a, "--namespace") }) {
			rest = append([]string{"-n", ts.Getenv("NS")}, rest...)
		}
		return "fairway-lab", append(append(lab, "kubectl"), rest...)
	case "on":
		return "fairway-lab", slices.Concat(lab, []string{"exec", args[1], "--"}, args[2:])
	case "fairway":
		return "fairway", args[1:]
	}
	ts.Fatalf("%s: want kubectl, on or fairway", args[0])
	return "", nil
}

func (s *stories) exec(ts *testscript.TestScript, args []string) (string, string, error) {
	program, rest := s.argv(ts, args)
	c := s.command(ts.MkAbs("."), program, rest...)
	if slices.Contains(rest, "-") {
		data, err := os.ReadFile(ts.MkAbs("stdin"))
		if err == nil {
			c.Stdin = bytes.NewReader(data)
		}
	}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	return stdout.String(), stderr.String(), err
}

func (s *stories) run(ts *testscript.TestScript, neg bool, args []string) {
	stdout, stderr, err := s.exec(ts, args)
	fmt.Fprint(ts.Stdout(), stdout)
	fmt.Fprint(ts.Stderr(), stderr)
	switch {
	case err != nil && !neg:
		ts.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	case err == nil && neg:
		ts.Fatalf("%s: succeeded and must not", strings.Join(args, " "))
	}
}

func (s *stories) kubectl(ts *testscript.TestScript, neg bool, args []string) {
	s.run(ts, neg, append([]string{"kubectl"}, args...))
}

func (s *stories) on(ts *testscript.TestScript, neg bool, args []string) {
	s.run(ts, neg, append([]string{"on"}, args...))
}

func (s *stories) fairway(ts *testscript.TestScript, neg bool, args []string) {
	s.run(ts, neg, append([]string{"fairway"}, args...))
}

// until SECONDS REGEXP COMMAND… repeats the command until its output matches (with !,
// until it does not).
func (s *stories) until(ts *testscript.TestScript, neg bool, args []string) {
	limit, re := seconds(ts, args[0]), regexp.MustCompile("(?s)"+args[1])
	deadline := time.Now().Add(limit)
	for {
		stdout, stderr, err := s.exec(ts, args[2:])
		if re.MatchString(stdout+stderr) != neg {
			fmt.Fprint(ts.Stdout(), stdout)
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("after %s %s still gives (%v):\n%s%s", limit, strings.Join(args[2:], " "), err, stdout, stderr)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// distinct N TRIES REGEXP COMMAND… runs the command TRIES times; the first group of
// REGEXP must take exactly N values.
func (s *stories) distinct(ts *testscript.TestScript, neg bool, args []string) {
	want, _ := strconv.Atoi(args[0])
	tries, _ := strconv.Atoi(args[1])
	re := regexp.MustCompile(args[2])
	seen := map[string]int{}
	for range tries {
		stdout, stderr, err := s.exec(ts, args[3:])
		m := re.FindStringSubmatch(stdout)
		if err != nil || m == nil {
			ts.Fatalf("%s: %v: no match of %s in\n%s%s", strings.Join(args[3:], " "), err, re, stdout, stderr)
		}
		seen[m[len(m)-1]]++
	}
	if len(seen) != want {
		ts.Fatalf("%d different answers in %d tries, want %d: %v", len(seen), tries, want, seen)
	}
}

// same A B compares two values.
func (s *stories) same(ts *testscript.TestScript, neg bool, args []string) {
	if (args[0] == args[1]) == neg {
		ts.Fatalf("%q and %q", args[0], args[1])
	}
}

// set NAME COMMAND… puts the command's output, trimmed, into a variable.
func (s *stories) set(ts *testscript.TestScript, neg bool, args []string) {
	stdout, stderr, err := s.exec(ts, args[1:])
	if err != nil {
		ts.Fatalf("%s: %v\n%s", strings.Join(args[1:], " "), err, stderr)
	}
	ts.Setenv(args[0], strings.TrimSpace(stdout))
}

// steady SECONDS NODE URL -- COMMAND… sends requests all the while the command runs and
// for SECONDS more: none may fail.
func (s *stories) steady(ts *testscript.TestScript, neg bool, args []string) {
	limit := seconds(ts, args[0])
	i := slices.Index(args, "--")
	probe := fmt.Sprintf(`n=0; bad=0; while [ ! -e %[2]s ]; do n=$((n+1)); curl -s -f -o /dev/null -m 3 %[1]s || { bad=$((bad+1)); echo "failed request $n: $?"; }; done; echo "requests $n failed $bad"`,
		args[2], ts.MkAbs("stop"))
	program, rest := s.argv(ts, []string{"on", args[1], "sh", "-c", probe})
	c := s.command(ts.MkAbs("."), program, rest...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		ts.Fatalf("%v", err)
	}
	stdout, stderr, err := s.exec(ts, args[i+1:])
	time.Sleep(limit)
	os.WriteFile(ts.MkAbs("stop"), nil, 0o644)
	c.Wait()
	os.Remove(ts.MkAbs("stop"))
	ts.Logf("%s", out.String())
	if err != nil {
		ts.Fatalf("%s: %v\n%s%s", strings.Join(args[i+1:], " "), err, stdout, stderr)
	}
	if !strings.Contains(out.String(), " failed 0\n") {
		ts.Fatalf("requests failed while %s ran", strings.Join(args[i+1:], " "))
	}
}

func seconds(ts *testscript.TestScript, s string) time.Duration {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		ts.Fatalf("%q is not a number of seconds", s)
	}
	return time.Duration(n * float64(time.Second))
}
