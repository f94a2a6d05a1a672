package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ErrNoIPSet is the reason when the ipset command is not installed, or has nothing to
// talk to.
var ErrNoIPSet = errors.New("ipset is missing")

// Sets applies an input of `ipset restore`. What is there already, or gone already, is
// no error; another error names the line refused, and what stands before it is done.
func (k *IPVS) Sets(ctx context.Context, input string) error {
	if input == "" {
		return nil
	}
	_, err := k.ipset(ctx, input, "-exist", "restore")
	return err
}

func (k *IPVS) ipset(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "ipset", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaint
	if err := inNetNS(k.netns, cmd.Start); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("%w on the node: install the Debian package ipset (apt-get install ipset)", ErrNoIPSet)
		}
		return "", fmt.Errorf("ipset: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if strings.Contains(complaint.String(), "Cannot open session to kernel") {
			return "", fmt.Errorf("%w in the kernel (module ip_set)", ErrNoIPSet)
		}
		return "", fmt.Errorf("ipset %s: %w: %s", args[len(args)-1], err, explain(complaint.String(), input))
	}
	return out.String(), nil
}
