package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"fairway/lab/state"
)

// applyManifests gives the cluster what every lab has: the resource kinds
// Fairway reads besides Kubernetes' own and, unless another way was asked for,
// Fairway itself.
func (l Lab) applyManifests(ctx context.Context, lab state.Lab) error {
	docs, err := os.ReadFile(manifest(lab.Tools, "crds.yaml"))
	if err != nil {
		return fmt.Errorf("resource kinds: %w", err)
	}
	what := "resource kinds of deploy/crds.yaml applied"
	if lab.Fairway != "none" {
		raw, err := os.ReadFile(manifest(lab.Tools, "fairway.yaml"))
		if err != nil {
			return fmt.Errorf("fairway's manifest: %w", err)
		}
		fairway, err := substitute(raw, lab)
		if err != nil {
			return fmt.Errorf("fairway's manifest: %w", err)
		}
		docs = bytes.Join([][]byte{docs, fairway}, []byte("\n---\n"))
		what = "deploy/crds.yaml and deploy/fairway.yaml applied"
	}
	if err := l.kubectl(ctx, lab, docs, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	l.Out.Say("%s", what)
	return nil
}

// kubectl runs our own kubectl with stdin.
func (l Lab) kubectl(ctx context.Context, lab state.Lab, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, lab.Tools.Lab)
	cmd.Args = append([]string{"kubectl"}, args...)
	cmd.Env = append(daemonEnv(os.Environ()), "KUBECONFIG="+l.Dir.Kubeconfig())
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", args[0], err, out)
	}
	return nil
}
