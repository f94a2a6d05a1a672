package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"fairway/kernel"

	"github.com/spf13/cobra"
)

func cleanupCommand() *cobra.Command {
	var mode string
	var kubeProxy bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every rule, set and map this program ever makes on this node",
		Long: `Cleanup removes the rules of all proxy modes from this node's kernel, and gives back the
kernel settings they needed. Services stop working at once. Stop the running program
first, or it programs them again.

Modes iptables and ipvs use kube-proxy's own names, so its chains, sets and virtual
servers go too; --kube-proxy removes those of its nftables mode as well.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list := modes()
			if mode != "" {
				m, err := modeOf(mode)
				if err != nil {
					return fmt.Errorf("--mode: %w", err)
				}
				list = []modeRoom{m}
			}
			return cleanup(c.Context(), c.OutOrStdout(), list, kubeProxy)
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "only this mode's rules: "+modeNames())
	c.Flags().BoolVar(&kubeProxy, "kube-proxy", false, "remove the tables of kube-proxy's nftables mode too")
	return c
}

// cleanup goes on after a failure: what can be removed is.
func cleanup(ctx context.Context, out io.Writer, list []modeRoom, kubeProxy bool) error {
	if err := needRoot("cleanup"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var errs []error
	for _, m := range list {
		if err := m.cleanup(ctx, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		fmt.Fprintf(out, "%s: nothing of ours is left\n", m.name)
	}
	if kubeProxy {
		if _, err := kernel.RemoveKubeProxyTables(0); err != nil {
			errs = append(errs, fmt.Errorf("kube-proxy: %w", err))
		} else {
			fmt.Fprintln(out, "kube-proxy: nothing of its nftables mode is left")
		}
	}
	if len(list) == len(modes()) { // of one mode nobody knows which settings others need
		restored, err := kernel.RestoreSysctls(0)
		if len(restored) > 0 {
			fmt.Fprintln(out, "settings given back:", strings.Join(restored, ", "))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
