// Command e2e runs Kubernetes' own [sig-network] Conformance specs against a
// lab. The name of a running lab and a choice of specs come in; a line for
// every spec that ends, one closing table, a JUnit report and the logs go out,
// with a non-zero exit when a spec failed or none ran. It never starts, stops
// or changes a lab, and judges nothing itself: the specs do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

type options struct {
	lab, stage, focus, bin, artifacts, kubeconfig string
	parallel                                      int
	limit                                         time.Duration
	failFast, conformance, list                   bool
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("e2e", flag.ContinueOnError)
	f.StringVar(&o.lab, "name", "lab", "name of the lab, as given to fairway-lab up --name")
	f.StringVar(&o.stage, "stage", "all", "comma list of services, dns, api, networking, rest; or short (2 minutes); or all")
	f.StringVar(&o.focus, "focus", "", "regular expression a spec's name must match")
	f.IntVar(&o.parallel, "parallel", 4, "specs that run at once")
	f.DurationVar(&o.limit, "timeout", 15*time.Minute, "limit for one spec")
	f.BoolVar(&o.failFast, "fail-fast", false, "stop at the first failure")
	f.BoolVar(&o.conformance, "conformance", true, "only specs marked [Conformance]")
	f.BoolVar(&o.list, "list", false, "print what would run, and end; needs no lab")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig valid inside the lab's fabric namespace (default: the lab's own)")
	f.StringVar(&o.bin, "bin", "", "folder with fairway-lab and e2e.test (default: the folder of this program)")
	f.StringVar(&o.artifacts, "artifacts", "", "folder for logs and reports (default: e2e-results in the folder of the binaries)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.parallel < 1 {
		fmt.Fprintln(f.Output(), "e2e: takes flags only, and --parallel of at least 1")
		return o, errors.New("usage")
	}
	return o, nil
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		o.bin = filepath.Dir(self)
	}
	specs, notRun, err := choose(ctx, o)
	if err != nil {
		return err
	}
	if o.list {
		printPlan(out, specs, notRun)
		return nil
	}
	r, err := prepare(o, out)
	if err != nil {
		return err
	}
	if err := r.checkNames(ctx, specs); err != nil {
		return fmt.Errorf("lab %s: %w", o.lab, err)
	}
	fmt.Fprintf(out, "lab %s: %d specs, %d at once; logs in %s\n", o.lab, len(specs), o.parallel, r.dir)
	started := time.Now()
	results := r.run(ctx, specs)
	printTable(out, results, notRun, time.Since(started))
	if err := writeJUnit(filepath.Join(r.dir, "junit.xml"), results); err != nil {
		return err
	}
	return verdict(results)
}

// choose asks the suite for its specs and picks the ones to run.
func choose(ctx context.Context, o options) (specs, notRun []Spec, err error) {
	c := choice{stages: strings.Split(o.stage, ","), conformance: o.conformance, noSCTP: probeSCTP()}
	if o.focus != "" {
		if c.focus, err = regexp.Compile(o.focus); err != nil {
			return nil, nil, fmt.Errorf("--focus: %w", err)
		}
	}
	suite := filepath.Join(o.bin, "e2e.test")
	list, err := exec.CommandContext(ctx, suite, "--list-tests").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%s --list-tests: %w (lab/e2e/build.sh builds it)", suite, err)
	}
	return plan(parseList(string(list)), c)
}

// probeSCTP asks the kernel for an SCTP socket.
func probeSCTP() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, syscall.IPPROTO_SCTP)
	if err != nil {
		return fmt.Errorf("socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP): %w", err)
	}
	return syscall.Close(fd)
}

func printPlan(out io.Writer, specs, notRun []Spec) {
	for _, s := range specs {
		fmt.Fprintf(out, "%-10s  %s\n", s.Stage, s.Short())
	}
	for _, s := range notRun {
		fmt.Fprintf(out, "%-10s  %s (%s)\n", "not run", s.Short(), s.Reason)
	}
	fmt.Fprintf(out, "%d specs, %d not run\n", len(specs), len(notRun))
}
