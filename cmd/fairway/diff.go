package main

import (
	"context"
	"fmt"

	"fairway/kernel"

	"github.com/spf13/cobra"
)

func diffCommand() *cobra.Command {
	s := source{inForce: true}
	c := &cobra.Command{
		Use:   "diff",
		Short: "Compare this node's kernel with what it should have; exit 1 on drift",
		Long: `Diff lists the rules in this node's kernel and compares them with those the objects ask
for. It prints what would have to be done to make them equal and changes nothing. It
needs root.

  kubectl exec -n fairway-system ds/fairway -- fairway diff --config /etc/fairway/fairway.yaml
  fairway diff --kubeconfig FILE --node worker-1
  fairway diff -f DIR`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needRoot("diff"); err != nil {
				return err
			}
			if s.node == "" {
				s.node = nodeName()
			}
			s.here = true
			cl, err := s.load(c, false)
			if err != nil {
				return err
			}
			local, err := kernel.LocalAddrs()
			if err != nil {
				return err
			}
			if note := elsewhere(s.node, cl.plan.Config.NodeIPs, local); note != "" {
				fmt.Fprintln(c.ErrOrStderr(), "note:", note)
			}
			lines, err := cl.drift(c.Context())
			if err != nil {
				return err
			}
			if s.output == "json" {
				if err := printJSON(c.OutOrStdout(), map[string]any{"node": s.node, "lines": lines}); err != nil {
					return err
				}
			} else {
				for _, l := range lines {
					fmt.Fprintln(c.OutOrStdout(), l)
				}
			}
			if len(lines) > 0 {
				return exitCode(1)
			}
			return nil
		},
	}
	s.flags(c, true)
	return c
}

// drift is what would have to be done to the kernel, in the mode's own words.
func (cl *cluster) drift(ctx context.Context) ([]string, error) {
	m, err := modeOf(cl.config.raw.Proxy.Mode)
	if err != nil {
		return nil, err
	}
	return m.drift(ctx, cl.plan)
}
