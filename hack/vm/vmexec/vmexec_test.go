package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestConsole(t *testing.T) {
	var got bytes.Buffer
	c := &console{w: &got, code: -1}
	for _, part := range []string{"one\ntw", "o\nVMEX", "IT 7\n", "no line end"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	c.flush()
	if got.String() != "one\ntwo\nno line end" || c.code != 7 {
		t.Errorf("passed on %q, exit code %d", got.String(), c.code)
	}
}

func TestPlan(t *testing.T) {
	t.Setenv("FAIRWAY_PASSED", "yes")
	t.Setenv("FAIRWAY_VM_MEMORY", "1")
	p := plan("/src/a", []string{"-test.v", "x y"})
	if !strings.HasPrefix(p, "/src/a\x00") || !strings.Contains(p, "\x00env:FAIRWAY_PASSED=yes\x00") || strings.Contains(p, "FAIRWAY_VM") ||
		!strings.HasSuffix(p, "\x00arg:-test.v\x00arg:x y") {
		t.Errorf("%q", p)
	}
}

// TestArchive: what cpio(1) would call a well-formed archive: every name once, directories
// before what is in them.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := newArchive(&b)
	a.data("/a/b/c", []byte("12345"))
	a.link("a/l", "/a/b/c")
	a.data("a/b/c", []byte("again"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for rest := b.Bytes(); len(rest) > 110; {
		size, name := field(t, rest, 6), field(t, rest, 11)
		names = append(names, string(rest[110:110+name-1]))
		at := (110 + name + 3) &^ 3
		rest = rest[at+(size+3)&^3:]
	}
	if got := strings.Join(names, " "); got != "a a/b a/b/c a/l TRAILER!!!" {
		t.Error(got)
	}
}

// field reads the n-th number of an entry's head.
func field(t *testing.T, head []byte, n int) int {
	t.Helper()
	v := 0
	for _, c := range head[6+8*n : 14+8*n] {
		v = v<<4 | strings.IndexByte("0123456789abcdef", c)
	}
	return v
}

// TestBoot runs a program of this machine in the virtual one: its output and its exit
// code come back, and it has the machine's own kernel.
func TestBoot(t *testing.T) {
	if os.Getenv("FAIRWAY_REQUIRE_IPVS") != "1" {
		t.Skip("FAIRWAY_REQUIRE_IPVS=1 boots the virtual machine (make test-ipvs)")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+"/", "fairway/hack/vm/vmexec", "fairway/hack/vm/vminit")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(filepath.Join(bin, "vmexec"), shell, "-c", "read -r v </proc/version; echo $v; pwd; exit 7").CombinedOutput()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.ExitCode() != 7 || !strings.Contains(string(out), "cloud-amd64") || !strings.Contains(string(out), "/src/hack/vm/vmexec") {
		t.Errorf("%v: %s", err, out)
	}
}
