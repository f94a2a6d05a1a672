// Package labtest tries the built fairway-lab as a person would: by its command
// line. In come the programs in bin/; out go verdicts. It keeps its labs in a
// directory of its own and never touches another one.
package labtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairway/lab/state"
)

// bench is one directory of labs with the program that handles them.
type bench struct {
	t       *testing.T
	program string
	root    string
}

// newBench skips the test where no lab can run, or fails it if
// FAIRWAY_REQUIRE_LAB=1 says that one must.
func newBench(t *testing.T) *bench {
	t.Helper()
	program, err := filepath.Abs("../../bin/fairway-lab")
	if err != nil {
		t.Fatal(err)
	}
	why := ""
	if os.Geteuid() != 0 {
		why = "a lab needs root"
	}
	for _, name := range []string{"fairway-lab", "cinit"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(program), name)); err != nil {
			why = fmt.Sprintf("%v; lab/build.sh builds it", err)
		}
	}
	if why != "" {
		if os.Getenv("FAIRWAY_REQUIRE_LAB") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	// Short: the kernel allows a socket's path 107 bytes.
	root, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, program: program, root: root}
	t.Cleanup(b.clean)
	return b
}

// clean takes down what a failed test has left.
func (b *bench) clean() {
	for _, name := range state.List(b.root) {
		if out, err := b.command("--name", name, "down").CombinedOutput(); err != nil {
			b.t.Errorf("down %s: %v\n%s", name, err, out)
		}
	}
	os.RemoveAll(b.root)
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.program, append([]string{"--state-root", b.root}, args...)...)
	cmd.Env = append(os.Environ(), "FAIRWAY_LAB=unnamed")
	return cmd
}

// run runs a command that must succeed and returns what it printed to its
// standard output.
func (b *bench) run(args ...string) string {
	b.t.Helper()
	cmd := b.command(args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("fairway-lab %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), diag.String())
	}
	return out.String()
}

// fails runs a command that must fail and returns all it printed.
func (b *bench) fails(args ...string) string {
	b.t.Helper()
	out, err := b.command(args...).CombinedOutput()
	if err == nil {
		b.t.Fatalf("fairway-lab %s succeeded:\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}

// apply gives manifests to a lab's kubectl.
func (b *bench) apply(name, manifests string) {
	b.t.Helper()
	cmd := b.command("--name", name, "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("apply: %v\n%s", err, out)
	}
}

// eventually runs a command until it succeeds and prints want.
func (b *bench) eventually(limit time.Duration, want string, args ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		out, err := b.command(args...).CombinedOutput()
		if err == nil && strings.Contains(string(out), want) {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("fairway-lab %s: no %q within %s; last: %v\n%s", strings.Join(args, " "), want, limit, err, out)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// networks returns the inode numbers of all network namespaces of a lab.
func (b *bench) networks(name string) map[uint64]bool {
	b.t.Helper()
	dir := state.Dir{Root: b.root, Name: name}
	found := map[uint64]bool{}
	for _, process := range dir.Processes() {
		pid := dir.Process(process).PID
		paths := []string{fmt.Sprintf("/proc/%d/ns/net", pid)}
		if process == state.ProcFabric {
			paths = []string{fmt.Sprintf("/proc/%d/fd/3", pid), fmt.Sprintf("/proc/%d/fd/4", pid), fmt.Sprintf("/proc/%d/fd/5", pid)}
		}
		for _, path := range paths {
			if inode, err := state.NetworkInode(path); err == nil {
				found[inode] = true
			}
		}
	}
	if len(found) < 4 {
		b.t.Fatalf("lab %s: only %d network namespaces found", name, len(found))
	}
	return found
}

// nothingLeft checks that a lab that went down has left no process, mount,
// namespace or file.
func (b *bench) nothingLeft(name string, networks map[uint64]bool) {
	b.t.Helper()
	dir := filepath.Join(b.root, name)
	if _, err := os.Stat(dir); err == nil {
		b.t.Errorf("%s is still there", dir)
	}
	for _, p := range state.InNetworks(networks) {
		b.t.Errorf("process %d is still in a network namespace of lab %s", p.PID, name)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		b.t.Errorf("a mount below %s is still there", dir)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range lines {
		raw, _ := os.ReadFile(file)
		if bytes.Contains(raw, []byte(b.root)) && bytes.Contains(raw, []byte("\x00--name\x00"+name+"\x00")) {
			b.t.Errorf("still runs: %s", bytes.ReplaceAll(raw, []byte{0}, []byte{' '}))
		}
	}
}
