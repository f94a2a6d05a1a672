package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairway/kernel"

	"github.com/spf13/cobra"
)

func cleanupCommand() *cobra.Command {
	var mode string
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every rule, set and map this program ever makes on this node",
		Long: `Cleanup removes the rules of all proxy modes from this node's kernel. Services stop
working at once. Stop the running program first, or it programs them again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			modes := []string{"nftables", "iptables"}
			if mode != "" {
				if !slices.Contains(modes, mode) {
					return fmt.Errorf("--mode %s: want nftables or iptables", mode)
				}
				modes = []string{mode}
			}
			if err := needRoot("cleanup"); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
			defer cancel()
			var errs []error
			for _, m := range modes {
				if err := cleanupMode(ctx, m); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", m, err))
					continue
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: nothing of ours is left\n", m)
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "only this mode's rules: nftables or iptables")
	return c
}

// cleanupMode is done with a mode whose tools are not on the node: it never ran here.
func cleanupMode(ctx context.Context, mode string) error {
	b, _, err := openBackend(ctx, mode, "")
	if errors.Is(err, kernel.ErrNoIPTables) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.Cleanup(ctx)
}
