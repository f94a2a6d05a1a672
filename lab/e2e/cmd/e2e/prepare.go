package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// prepare makes the folder for this run, and checks that what the run needs is
// there before the first spec waits for it.
func prepare(o options, out io.Writer) (*runner, error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	lab := filepath.Join(bin, "fairway-lab")
	if _, err := os.Stat(lab); err != nil {
		return nil, fmt.Errorf("%w (make lab builds it)", err)
	}
	if err := checkTools(); err != nil {
		return nil, err
	}
	if o.artifacts == "" {
		o.artifacts = filepath.Join(bin, "e2e-results")
	}
	dir, err := filepath.Abs(filepath.Join(o.artifacts, o.lab+"-"+time.Now().Format("20060102-150405")))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Inside the lab, $KUBECONFIG and the kubectl in $PATH are the lab's own.
	flags := []string{
		"--provider=skeleton",
		"--dump-logs-on-failure=false", // thousands of lines; the lab keeps the logs
		"--ginkgo.no-color",
	}
	if o.kubeconfig != "" {
		flags = append(flags, "--kubeconfig="+o.kubeconfig)
	}
	return &runner{
		enter: []string{lab, "exec", "--name", o.lab, "fabric", "--"},
		suite: filepath.Join(bin, "e2e.test"), flags: flags, dir: dir,
		parallel: o.parallel, limit: o.limit, failFast: o.failFast, out: out,
	}, nil
}

// checkTools looks for the programs that the suite calls inside its Pods, whose
// image has them and whose stand-in in the lab takes them from this machine. A
// spec that misses one fails only after minutes, with a message about time.
func checkTools() error {
	for _, t := range []struct{ tool, pkg string }{
		{"nc", "netcat-openbsd"}, {"dig", "bind9-dnsutils"}, {"curl", "curl"},
	} {
		if _, err := exec.LookPath(t.tool); err != nil {
			return fmt.Errorf("%w (Debian package %s)", err, t.pkg)
		}
	}
	return nil
}
