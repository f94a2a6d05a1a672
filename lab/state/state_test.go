package state

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestLockIsHeldByOne(t *testing.T) {
	d := Dir{Root: t.TempDir(), Name: "x"}
	unlock, err := d.Lock(true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(true); !errors.Is(err, ErrBusy) {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	unlock, err = d.Lock(false)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := os.RemoveAll(d.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lock of a lab that is not there: %v", err)
	}
}

func TestProcessesAreKnownForGood(t *testing.T) {
	d := Dir{Root: t.TempDir(), Name: "x"}
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.Record("p", cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p := d.Process("p")
	if !p.Alive() {
		t.Error("not alive")
	}
	if (Process{PID: p.PID, Start: p.Start + 1}).Alive() {
		t.Error("another process of the same number is taken for it")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not waited for: it is a zombie now, which counts as gone.
	if err := p.WaitGone(5 * time.Second); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if d.Process("other").Alive() {
		t.Error("an unknown process is alive")
	}
}

func TestWithArguments(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read line", "--name", "some-lab")
	if _, err := cmd.StdinPipe(); err != nil { // holds the shell until it is killed
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if found := WithArguments("-c", []string{"--name", "some-lab"}); !slices.Contains(found, p) {
		t.Errorf("not found: %v", found)
	}
	if found := WithArguments("-c", []string{"--name", "some"}); len(found) > 0 {
		t.Errorf("found by half a name: %v", found)
	}
}

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{"lab": true, "a": true, "a-1": true, "": false, "-a": false, "a-": false,
		"A": false, "..": false, "a/b": false, "a123456789012345678901": false} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
