// Package lab runs the articles' stories in a lab: kubectl and real packets in, what a
// reader of the articles would see out. The lab is up already (test/lab.sh); its name
// and proxy mode come from the environment. Each story has a namespace of its own.
package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// stories is what the commands need to know.
type stories struct {
	bin  string // the repository's bin directory
	name string // of the lab
	mode string

	mu    sync.Mutex
	loops map[string]*loop // of begin, by script and name
}

// TestStories runs the stories that leave the lab to others: several at a time.
func TestStories(t *testing.T) {
	p := open(t)
	p.Dir = "testdata"
	testscript.Run(t, p)
}

// TestAlone runs the stories that change the lab itself (a node, the control plane,
// Fairway), one after the other, after all others. Each leaves the lab as it was.
func TestAlone(t *testing.T) {
	files, err := filepath.Glob("testdata/alone/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			p := open(t)
			p.Files = []string{f}
			t.Cleanup(func() {
				if t.Failed() {
					powerOn()
				}
			})
			testscript.Run(t, p)
		})
	}
}

// powerOn gives the stories after one that failed halfway a lab where everything runs.
func powerOn() {
	s := &stories{name: os.Getenv("FAIRWAY_LAB"), bin: "../../bin"}
	for _, part := range []string{"control-plane", "node1", "node2", "node3"} {
		// What runs already, or is not there, is an error and as well.
		s.command(".", "fairway-lab", "--name", s.name, "start-node", part).Run()
		if part != "control-plane" {
			s.command(".", "fairway-lab", "--name", s.name, "exec", part, "--", "pkill", "-CONT", "-x", "fairway").Run()
		}
	}
}

// open says how stories run in the lab that the environment names, or skips.
func open(t *testing.T) testscript.Params {
	s := &stories{name: os.Getenv("FAIRWAY_LAB"), mode: os.Getenv("FAIRWAY_LAB_MODE")}
	if s.name == "" {
		if os.Getenv("FAIRWAY_REQUIRE_LAB") == "1" && os.Getenv("FAIRWAY_LAB_SCRIPT") == "1" {
			t.Fatal("FAIRWAY_LAB names no lab")
		}
		t.Skip("no lab: run make test-lab, or set FAIRWAY_LAB and FAIRWAY_LAB_MODE to one that is up")
	}
	var err error
	if s.bin, err = filepath.Abs("../../bin"); err != nil {
		t.Fatal(err)
	}
	return testscript.Params{
		RequireExplicitExec: true,
		Setup:               s.setup,
		Condition: func(cond string) (bool, error) {
			if mode, ok := strings.CutPrefix(cond, "mode:"); ok {
				return s.mode == mode, nil
			}
			if cond == "ipvs" { // the kernel's, which all nodes share
				_, err := os.Stat("/proc/net/ip_vs")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"kubectl":  s.kubectl,
			"on":       s.on,
			"lab":      s.lab,
			"until":    s.until,
			"distinct": s.distinct,
			"same":     s.same,
			"set":      s.set,
			"fairway":  s.fairway,
			"steady":   s.steady,
			"begin":    s.begin,
			"end":      s.end,
		},
	}
}

// TestPending keeps the list of the articles' lines honest: a line is in a story or in
// the list of pending ones, never nowhere.
func TestPending(t *testing.T) {
	text := ""
	files, _ := filepath.Glob("testdata/*.txtar")
	alone, _ := filepath.Glob("testdata/alone/*.txtar")
	for _, f := range slices.Concat(files, alone, []string{"pending.txt"}) {
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

// labRoot is where fairway-lab keeps labs unless told otherwise.
const labRoot = "/var/lib/fairway-lab"

func (s *stories) setup(e *testscript.Env) error {
	ns := "s-" + filepath.Base(e.WorkDir)
	ns = strings.TrimPrefix(ns, "s-script-")
	e.Setenv("NS", ns)
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("BIN", s.bin)
	e.Setenv("MODE", s.mode)
	e.Setenv("KUBECONFIG", filepath.Join(labRoot, s.name, "kubeconfig"))
	// One of an earlier run may still be on its way out.
	for i := 0; ; i++ {
		out, err := s.command(e.WorkDir, "fairway-lab", "--name", s.name, "kubectl", "create", "namespace", ns).CombinedOutput()
		if err == nil {
			break
		}
		if i == 60 || !strings.Contains(string(out), "being deleted") {
			return fmt.Errorf("namespace %s: %s", ns, out)
		}
		time.Sleep(time.Second)
	}
	e.Defer(func() {
		s.command(e.WorkDir, "fairway-lab", "--name", s.name, "kubectl", "delete", "namespace", ns, "--wait=false").Run()
	})
	return nil
}
