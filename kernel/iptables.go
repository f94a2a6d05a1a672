package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"fairway/proxy/iptables"

	"golang.org/x/sys/unix"
)

// IPTables runs the iptables commands of one family in one network namespace.
type IPTables struct {
	v6      bool
	netns   int
	variant Variant
	tools   tools
}

// Variant is one of the two programs called iptables, which keep their rules apart.
type Variant string

// The variants: rules in nf_tables, or in the older kernel tables.
const (
	AnyVariant    Variant = ""
	NFTVariant    Variant = "nft"
	LegacyVariant Variant = "legacy"
)

// tools are the commands of a variant, by name or path.
type tools struct{ restore, save, rule string }

const (
	// restoreTimeout bounds one restore; ten thousand Services take seconds.
	restoreTimeout = 5 * time.Minute
	// lockWait is how long the commands wait for another user of the tables, seconds.
	lockWait = "5"
	// nftBatch is the number of ServicePorts in one restore of the nft variant, whose
	// time grows with the square of what it loads: 2,000 Services of ten endpoints take
	// 6.6 s of processor time by 500 and 2.7 s by 150. By 50 they take 2.4 s, but every
	// restore reads the names of all chains first.
	nftBatch = 150
)

// ErrNoIPTables is the reason when the commands are not installed.
var ErrNoIPTables = errors.New("iptables is not installed")

// Variant tells which of the two programs is used.
func (t *IPTables) Variant() Variant { return t.variant }

// Batch is the number of ServicePorts to put into one Restore.
func (t *IPTables) Batch() int {
	if t.variant == LegacyVariant {
		return 1 << 30
	}
	return nftBatch
}

// List reads all tables.
func (t *IPTables) List(ctx context.Context) (*iptables.Program, error) {
	out, err := t.run(ctx, "", t.tools.save)
	if err != nil {
		return nil, err
	}
	p, err := iptables.Parse(out, t.v6)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.tools.save, err)
	}
	return p, nil
}

// Restore applies an input of iptables-restore and touches no chain it does not name.
// Each table in it takes effect at once; an error names the line refused.
func (t *IPTables) Restore(ctx context.Context, input string) error {
	_, err := t.run(ctx, input, t.tools.restore, "-w", lockWait, "--noflush")
	return err
}

// Test has input parsed but not applied.
func (t *IPTables) Test(ctx context.Context, input string) error {
	_, err := t.run(ctx, input, t.tools.restore, "-w", lockWait, "--noflush", "--test")
	return err
}

// Intact tells whether the canary chains are still there, which go when somebody deletes
// the tables' chains, and the jumps to ours from the built-in chains, which a bare
// iptables -F takes away too.
func (t *IPTables) Intact(ctx context.Context) (bool, error) {
	for _, look := range []struct{ table, chain, has string }{
		{iptables.Mangle, iptables.Canary, ""}, {iptables.Nat, iptables.Canary, ""}, {iptables.Filter, iptables.Canary, ""},
		{iptables.Nat, "PREROUTING", "-j KUBE-SERVICES"}, {iptables.Filter, "FORWARD", "-j KUBE-FORWARD"},
	} {
		out, err := t.run(ctx, "", t.tools.rule, "-w", lockWait, "-t", look.table, "-S", look.chain)
		var exit *exec.ExitError
		switch {
		case err == nil && strings.Contains(out, look.has):
		case err == nil || errors.As(err, &exit) && exit.ExitCode() == 1:
			return false, nil
		default:
			return false, err
		}
	}
	return true, nil
}

// run runs a command in the network namespace and returns what it printed.
func (t *IPTables) run(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaint
	if err := inNetNS(t.netns, cmd.Start); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("%s: %w: install the Debian package iptables (apt-get install iptables)", name, ErrNoIPTables)
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, explain(complaint.String(), input))
	}
	return out.String(), nil
}

// explain adds to "line N failed" what stands in that line.
func explain(complaint, input string) string {
	complaint = strings.TrimSpace(complaint)
	_, rest, ok := strings.Cut(complaint, "line ")
	if !ok {
		_, rest, ok = strings.Cut(complaint, "line: ")
	}
	if !ok {
		return complaint
	}
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, err := strconv.Atoi(digits)
	lines := strings.Split(input, "\n")
	if err != nil || n < 1 || n > len(lines) {
		return complaint
	}
	return fmt.Sprintf("%s (line %d: %s)", complaint, n, lines[n-1])
}

// inNetNS runs f on a thread in the network namespace of the descriptor; 0 is the
// current one. Processes started by f are born there.
func inNetNS(fd int, f func() error) error {
	if fd == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
