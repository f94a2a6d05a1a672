package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"fairway/lab/netspace"
	"fairway/lab/state"
)

// daemon is a process of the lab that outlives the command that starts it.
type daemon struct {
	name  string   // also its record and its log
	args  []string // of our own program
	space *os.File // its network namespace; nil is ours
	own   uintptr  // further namespaces of its own
	files []*os.File
}

// spawn starts d in a session of its own and remembers it.
func spawn(dir state.Dir, lab state.Lab, d daemon) error {
	if err := os.MkdirAll(filepath.Dir(dir.Log(d.name)), 0o755); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	log, err := os.OpenFile(dir.Log(d.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	defer log.Close()
	cmd := exec.Command(lab.Tools.Lab, append([]string{"daemon"}, d.args...)...)
	cmd.Dir = "/"
	cmd.Env = daemonEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = d.files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: d.own}
	if d.space == nil {
		err = cmd.Start()
	} else {
		err = netspace.Start(d.space, cmd)
	}
	if err != nil {
		return fmt.Errorf("%s: start: %w", d.name, err)
	}
	if err := dir.Record(d.name, cmd.Process.Pid); err != nil {
		return err
	}
	// Collected while we live, so that its end can be told from its running.
	go func() { _ = cmd.Wait() }()
	return nil
}

// daemonEnv leaves out what would send the lab's own traffic elsewhere or make
// its components behave otherwise than on the next machine.
func daemonEnv(env []string) []string {
	out := []string{"LANG=C.UTF-8"}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR":
			out = append(out, kv)
		}
	}
	return out
}

// checkAlive returns an error that shows the end of the log of the first of
// the named processes that no longer runs.
func checkAlive(dir state.Dir, names ...string) error {
	for _, name := range names {
		if !dir.Process(name).Alive() {
			return fmt.Errorf("%s stopped; the end of %s:\n%s", name, dir.Log(name), tail(dir.Log(name), 12))
		}
	}
	return nil
}

func tail(file string, lines int) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "    " + string(bytes.Join(all, []byte("\n    ")))
}
