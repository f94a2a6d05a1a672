// Package hack_test runs the shell scripts of this folder against a directory
// of stand-in system commands. Scripts go in, their exit status, messages and
// the commands they ran come out; the machine's own packages are never touched.
package hack_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a PATH with stand-ins for dpkg-query, apt-get and id.
type machine struct {
	t   *testing.T
	dir string
	env []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	for _, tool := range []string{"sh", "ls", "rm", "cat", "chmod", "touch", "date", "mktemp"} {
		real, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("this machine has no %s", tool)
		}
		if err := os.Symlink(real, filepath.Join(m.dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	m.write("lists/x_Packages", "")
	m.command("id", "echo 0")
	m.command("dpkg-query", `for p; do :; done
if [ -e "$STATE/installed-$p" ]; then echo installed; else exit 1; fi`)
	m.command("apt-get", `echo "$*" >>"$STATE/apt.log"
[ -e "$STATE/policy" ] || echo "daemons allowed" >>"$STATE/apt.log"
for w; do case $w in
update) touch "$STATE/fresh" ;;
nginx) [ -e "$STATE/fresh" ] || [ ! -e "$STATE/stale" ] || exit 100; touch "$STATE/installed-nginx" ;;
esac; done`)
	m.env = []string{
		"PATH=" + m.dir, "STATE=" + m.dir, "FAIRWAY_APT_LISTS=" + m.dir + "/lists",
		"FAIRWAY_POLICY_RC_D=" + m.dir + "/policy",
	}
	return m
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) command(name, body string) { m.write(name, "#!/bin/sh\n"+body+"\n") }

func (m *machine) apt() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, "apt.log"))
	return string(text)
}

// run returns the exit status and everything printed.
func (m *machine) run(script string, args ...string) (int, string) {
	m.t.Helper()
	path, err := filepath.Abs(script)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{path}, args...)...)
	cmd.Env = m.env
	out, err := cmd.CombinedOutput()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func expect(t *testing.T, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s lacks %q:\n%s", what, w, got)
		}
	}
}

func TestPackagesQuietWhenPresent(t *testing.T) {
	m := newMachine(t)
	m.write("installed-nginx", "")
	if code, out := m.run("packages.sh", "nginx:serves pages"); code != 0 || out != "" {
		t.Errorf("exit %d, printed %q; want 0 and nothing", code, out)
	}
}

func TestPackagesInstalls(t *testing.T) {
	m := newMachine(t)
	code, out := m.run("packages.sh", "nginx:serves pages")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	expect(t, "output", out, "missing nginx: serves pages")
	expect(t, "apt's calls", m.apt(), "install -y --no-install-recommends nginx")
	if strings.Contains(m.apt(), "update") || strings.Contains(m.apt(), "daemons allowed") {
		t.Errorf("want no update, and daemons forbidden:\n%s", m.apt())
	}
	if _, err := os.Stat(m.dir + "/policy"); err == nil {
		t.Error("the policy that forbids daemons was left behind")
	}
}

func TestPackagesKeepsOwnPolicy(t *testing.T) {
	m := newMachine(t)
	m.write("policy", "the machine's own")
	m.run("packages.sh", "nginx:serves pages")
	if text, _ := os.ReadFile(m.dir + "/policy"); string(text) != "the machine's own" {
		t.Errorf("the machine's policy became %q", text)
	}
}

func TestPackagesUpdatesEmptyOrStaleLists(t *testing.T) {
	for _, state := range []string{"empty", "stale"} {
		m := newMachine(t)
		m.write("stale", "")
		if state == "empty" {
			if err := os.Remove(m.dir + "/lists/x_Packages"); err != nil {
				t.Fatal(err)
			}
		}
		code, out := m.run("packages.sh", "nginx:serves pages")
		installs := strings.Count(m.apt(), "install -y")
		if want := map[string]int{"empty": 1, "stale": 2}[state]; code != 0 || installs != want {
			t.Errorf("%s lists: exit %d after %d installs, want 0 after %d:\n%s", state, code, installs, want, out)
		}
		expect(t, "apt's calls", m.apt(), "update")
	}
}

func TestPackagesFailsWhenStillMissing(t *testing.T) {
	m := newMachine(t)
	code, out := m.run("packages.sh", "nginx:serves pages", "nosuch:a reason")
	if code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	expect(t, "output", out, "still missing after apt-get install: nosuch")
}

func TestPackagesSaysWhatToRun(t *testing.T) {
	user, noApt := newMachine(t), newMachine(t)
	user.command("id", "echo 1000")
	if err := os.Remove(noApt.dir + "/apt-get"); err != nil {
		t.Fatal(err)
	}
	for reason, m := range map[string]*machine{"needs root": user, "no apt-get": noApt} {
		code, out := m.run("packages.sh", "nginx:serves pages", "socat:joins sockets")
		if code != 1 || m.apt() != "" {
			t.Errorf("exit %d, want 1 and no call of apt-get: %q", code, m.apt())
		}
		expect(t, "output", out, reason, "apt-get install -y --no-install-recommends nginx socat'")
	}
}

func TestPackagesBadArgument(t *testing.T) {
	for _, arg := range []string{"nginx", ":why", "nginx:"} {
		if code, _ := newMachine(t).run("packages.sh", arg); code != 2 {
			t.Errorf("%q: exit %d, want 2", arg, code)
		}
	}
}

func TestPackagesSkip(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "FAIRWAY_SKIP_PACKAGES=1")
	if code, _ := m.run("packages.sh", "nginx:serves pages"); code != 0 || m.apt() != "" {
		t.Errorf("exit %d, apt-get called with %q; want 0 and no call", code, m.apt())
	}
}

func TestProgressCountsAndPassesErrors(t *testing.T) {
	m := newMachine(t)
	m.command("build", "echo k8s.io/api/core/v1; echo fmt; echo './a.go:1:2: undefined: x'; exit 3")
	code, out := m.run("progress.sh", "thing", "build")
	if code != 3 {
		t.Errorf("exit %d, want the command's own 3", code)
	}
	expect(t, "output", out, "./a.go:1:2: undefined: x\n", "thing: 2 packages compiled, 0:0")
	if strings.Contains(out, "core/v1") {
		t.Errorf("package names are for terminals only:\n%s", out)
	}
}
