package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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
			list := modes()
			if mode != "" {
				m, err := modeOf(mode)
				if err != nil {
					return fmt.Errorf("--mode: %w", err)
				}
				list = []modeRoom{m}
			}
			if err := needRoot("cleanup"); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
			defer cancel()
			var errs []error
			for _, m := range list {
				if err := m.cleanup(ctx, ""); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
					continue
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: nothing of ours is left\n", m.name)
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "only this mode's rules: "+modeNames())
	return c
}
