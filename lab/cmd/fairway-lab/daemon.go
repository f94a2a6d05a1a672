package main

import (
	"fairway/lab/cluster"
	"fairway/lab/controlplane"
	"fairway/lab/node"

	"github.com/spf13/cobra"
)

// daemonCommand holds the lab's own processes. `up` starts them; they are of
// no use by hand.
func daemonCommand(where *place) *cobra.Command {
	var number int
	daemon := &cobra.Command{Use: "daemon", Short: "The lab's own processes", Hidden: true}
	nodeCmd := &cobra.Command{
		Use: "node",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := where.dir()
			lab, err := dir.Load()
			if err != nil {
				return err
			}
			return node.Run(cmd.Context(), node.Config{Dir: dir, Lab: lab, Number: number})
		},
	}
	nodeCmd.Flags().IntVar(&number, "number", 0, "the node's number")
	daemon.AddCommand(nodeCmd,
		&cobra.Command{
			Use:  "control-plane",
			RunE: func(*cobra.Command, []string) error { return runControlPlane(where) },
		},
		&cobra.Command{
			Use: "fabric",
			RunE: func(cmd *cobra.Command, _ []string) error {
				return cluster.HoldFabric(cmd.Context(), where.dir())
			},
		})
	return daemon
}

func runControlPlane(where *place) error {
	dir := where.dir()
	lab, err := dir.Load()
	if err != nil {
		return err
	}
	return controlplane.Run(dir, lab.Family)
}
