// Command cinit becomes a container's first process, an extra process in a running container, or the process that keeps
// a Pod's namespaces. In comes one spec.Spec on file descriptor 3; out goes an execve, or an Answer that says why not.
// It never listens, never logs and stays small: it is started for every container and probe.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"fairway/lab/cri/spec"

	"golang.org/x/sys/unix"
)

func main() {
	// Namespaces and credentials belong to a thread; execve keeps those of the one that calls it.
	runtime.LockOSThread()
	if filepath.Base(os.Args[0]) == "pause" {
		hold()
		return
	}
	unix.CloseOnExec(spec.TalkFD)
	talk := os.NewFile(spec.TalkFD, "talk")
	var s spec.Spec
	err := json.NewDecoder(talk).Decode(&s)
	if err == nil {
		err = become(&s, talk)
	}
	if err != nil {
		answer(talk, spec.Answer{Error: err.Error()})
		os.Exit(128) // what other runtimes give for a container that could not start
	}
}

// become does not return when it succeeds, except in a sandbox whose end has come.
func become(s *spec.Spec, talk *os.File) error {
	// A process of the container must not look into this one before it has given up its rights.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl dumpable: %w", err)
	}
	if s.Join != 0 {
		if err := join(s.Join); err != nil {
			return err
		}
	}
	if s.Mode == spec.Sandbox {
		return sandbox(s, talk)
	}
	if s.Mode == spec.Run {
		if err := buildRoot(s.Root); err != nil {
			return err
		}
	}
	if s.TTY {
		if err := openTerminal(talk); err != nil {
			return err
		}
	}
	return execute(s)
}

func join(flags int) error {
	unix.CloseOnExec(spec.JoinFD)
	if flags&unix.CLONE_NEWNS != 0 {
		// A mount namespace can be joined only by a thread that shares its root and cwd with no other.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare fs: %w", err)
		}
	}
	if err := unix.Setns(spec.JoinFD, flags); err != nil {
		return fmt.Errorf("join the namespaces: %w", err)
	}
	return nil
}

func execute(s *spec.Spec) error {
	if err := enterDir(s); err != nil {
		return err
	}
	if err := dropRights(s); err != nil {
		return err
	}
	unix.Umask(0o022)
	path, err := lookPath(s.Argv[0], s.Env)
	if err != nil {
		return err
	}
	resetSignals()
	return fmt.Errorf("exec %s: %w", path, unix.Exec(path, s.Argv, s.Env))
}

func enterDir(s *spec.Spec) error {
	dir := s.Cwd
	if dir == "" {
		dir = "/"
	}
	err := os.Chdir(dir)
	if errors.Is(err, os.ErrNotExist) && s.Mode == spec.Run {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			err = os.Chdir(dir)
		}
	}
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// lookPath searches the container's own PATH, not that of this process.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(lookEnv(env, "PATH")) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%q: executable file not found in $PATH", name)
}

func lookEnv(env []string, key string) string {
	for _, line := range env {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return value
		}
	}
	return ""
}

func answer(talk *os.File, a spec.Answer) {
	line, err := json.Marshal(a)
	if err != nil {
		return
	}
	// Nobody is left to tell when the runtime has gone.
	_, _ = talk.Write(append(line, '\n'))
}
