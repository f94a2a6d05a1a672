package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// loop is a command that a client repeats while the story goes on.
type loop struct {
	file string // as long as this file is there
	cmd  *exec.Cmd
	out  bytes.Buffer
	what string
}

// repeat runs its arguments about ten times a second as long as the file $1 is there,
// and writes when each run began and ended, its exit code, and what a failed one said.
const repeat = `run=$1; shift
while [ -e "$run" ]; do
	a=$EPOCHREALTIME; said=$("$@" 2>&1); rc=$?; b=$EPOCHREALTIME
	[ $rc = 0 ] && said=
	echo "$a $b $rc ${said//$'\n'/ }"
	sleep 0.08
done`

// begin NAME PLACE COMMAND… starts a client that repeats the command on a node or on
// client until end NAME.
func (s *stories) begin(ts *testscript.TestScript, neg bool, args []string) {
	name := args[0]
	l := &loop{file: ts.MkAbs(name + ".go"), what: strings.Join(args[1:], " ")}
	if err := os.WriteFile(l.file, nil, 0o644); err != nil {
		ts.Fatalf("%v", err)
	}
	program, rest := s.argv(ts, slices.Concat([]string{"on", args[1], "bash", "-c", repeat, "repeat", l.file}, args[2:]))
	l.cmd = exec.Command(s.bin+"/"+program, rest...)
	l.cmd.Dir = ts.MkAbs(".")
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.out
	if err := l.cmd.Start(); err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Defer(func() { s.finish(ts, name) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loops == nil {
		s.loops = map[string]*loop{}
	}
	s.loops[l.file] = l
}

// finish ends a client and returns it; nil when it was ended before.
func (s *stories) finish(ts *testscript.TestScript, name string) *loop {
	file := ts.MkAbs(name + ".go")
	s.mu.Lock()
	l := s.loops[file]
	delete(s.loops, file)
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	os.Remove(file)
	l.cmd.Wait()
	return l
}

// end NAME [SECONDS] ends the client that begin started: none of its requests may have
// failed, or with SECONDS never for longer than that at a stretch.
func (s *stories) end(ts *testscript.TestScript, neg bool, args []string) {
	l := s.finish(ts, args[0])
	if l == nil {
		ts.Fatalf("%s was not begun", args[0])
	}
	allowed := time.Duration(0)
	if len(args) > 1 {
		allowed = seconds(ts, args[1])
	}
	r := read(l.out.String())
	fmt.Fprintf(ts.Stdout(), "%s\n", r)
	ts.Logf("%s: %s", args[0], r)
	switch {
	case r.runs < 5:
		ts.Fatalf("%s: only %d requests: %s\n%s", args[0], r.runs, l.what, l.out.String())
	case r.gap > allowed:
		ts.Fatalf("%s: %s: failed for %.1f s, want at most %.1f s:\n%s", args[0], l.what,
			r.gap.Seconds(), allowed.Seconds(), strings.Join(r.failures, "\n"))
	}
}

// record is what a client saw.
type record struct {
	runs     int
	failures []string
	longest  time.Duration // the slowest request that succeeded
	gap      time.Duration // from the first failure's beginning to the next success' end
}

func (r record) String() string {
	return fmt.Sprintf("requests %d failed %d, for %.2f s; slowest %.2f s", r.runs, len(r.failures), r.gap.Seconds(), r.longest.Seconds())
}

func read(out string) record {
	var r record
	var first, begun float64
	line := regexp.MustCompile(`(?m)^(\d+[.,]\d+) (\d+[.,]\d+) (\d+) (.*)$`)
	for _, m := range line.FindAllStringSubmatch(out, -1) {
		from, to := clock(m[1]), clock(m[2])
		if begun == 0 {
			begun = from
		}
		r.runs++
		switch {
		case m[3] == "0":
			r.longest = max(r.longest, time.Duration((to-from)*1e9))
		default:
			r.failures = append(r.failures, fmt.Sprintf("%.2f s after the beginning, for %.2f s: exit code %s %s", from-begun, to-from, m[3], m[4]))
			if first == 0 {
				first = from
			}
		}
		if first != 0 {
			r.gap = max(r.gap, time.Duration((to-first)*1e9))
		}
		if m[3] == "0" {
			first = 0
		}
	}
	return r
}

func clock(s string) float64 {
	t, _ := strconv.ParseFloat(strings.Replace(s, ",", ".", 1), 64)
	return t
}

// steady SECONDS PLACE URL -- COMMAND… sends requests all the while the command runs and
// for SECONDS more: none may fail.
func (s *stories) steady(ts *testscript.TestScript, neg bool, args []string) {
	limit, i := seconds(ts, args[0]), slices.Index(args, "--")
	s.begin(ts, false, []string{"steady", args[1], "curl", "-sS", "-f", "-o", "/dev/null", "-m", "3", args[2]})
	time.Sleep(500 * time.Millisecond)
	stdout, stderr, err := s.exec(ts, args[i+1:])
	time.Sleep(limit)
	s.end(ts, false, []string{"steady"})
	if err != nil {
		ts.Fatalf("%s: %v\n%s%s", strings.Join(args[i+1:], " "), err, stdout, stderr)
	}
}
