package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// dnsPatience is how long a lab just brought up may take to have its DNS.
const dnsPatience = 30 * time.Second

// checkNames waits until the cluster has a DNS server, if any chosen spec
// needs one. Most specs of Services reach them by name, and each would fail
// only after two minutes.
func (r *runner) checkNames(ctx context.Context, specs []Spec) error {
	needed := func(s Spec) bool { return s.Stage == "services" || s.Stage == "dns" }
	if !slices.ContainsFunc(specs, needed) {
		return nil
	}
	args := slices.Concat(r.enter, []string{
		"kubectl", "get", "endpointslices", "--all-namespaces", "-l", "kubernetes.io/service-name=kube-dns",
		"-o", "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses}",
	})
	for deadline := time.Now().Add(dnsPatience); ; time.Sleep(time.Second) {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stderr = &stderr
		ready, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("kubectl get endpointslices: %w: %s", err, strings.TrimSpace(stderr.String()))
		}
		if len(bytes.TrimSpace(ready)) > 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("no ready endpoint of a kube-dns Service after " + dnsPatience.String() +
				": the stages services and dns need names (api, networking and rest do not)")
		}
	}
}
