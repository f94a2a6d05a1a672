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
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func (s *stories) command(dir, program string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
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
	case "lab":
		return "fairway-lab", slices.Concat(lab, args[1:])
	case "fairway":
		return "fairway", args[1:]
	}
	ts.Fatalf("%s: want kubectl, on, lab or fairway", args[0])
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

func (s *stories) lab(ts *testscript.TestScript, neg bool, args []string) {
	s.run(ts, neg, append([]string{"lab"}, args...))
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
	stdout, stderr, err := s.exec(ts, many(ts, args[1], args[3:]))
	answers := strings.Split(stdout, nextTry)
	if err != nil || len(answers) != tries+1 {
		ts.Fatalf("%s: %v in try %d:\n%s%s", strings.Join(args[3:], " "), err, len(answers), stdout, stderr)
	}
	seen := map[string]int{}
	for _, answer := range answers[:tries] {
		m := re.FindStringSubmatch(answer)
		if m == nil {
			ts.Fatalf("%s: no match of %s in\n%s", strings.Join(args[3:], " "), re, answer)
		}
		seen[m[len(m)-1]]++
	}
	if len(seen) != want {
		ts.Fatalf("%d different answers in %d tries, want %d: %v", len(seen), tries, want, seen)
	}
}

const nextTry = "\n-- next --\n"

// many makes one command of many tries, repeated where they run: to get there takes
// longer than a try.
func many(ts *testscript.TestScript, tries string, args []string) []string {
	at := slices.Index(args, "--") + 1 // kubectl exec POD -- COMMAND
	if args[0] == "on" {
		at = 2
	}
	if at == 0 {
		ts.Fatalf("distinct: want on PLACE COMMAND or kubectl exec POD -- COMMAND")
	}
	loop := `n=$1; shift; while [ $n -gt 0 ]; do n=$((n-1)); "$@" || exit; printf '\n-- next --\n'; done`
	return slices.Concat(args[:at], []string{"sh", "-c", loop, "sh", tries}, args[at:])
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

func seconds(ts *testscript.TestScript, s string) time.Duration {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		ts.Fatalf("%q is not a number of seconds", s)
	}
	return time.Duration(n * float64(time.Second))
}
