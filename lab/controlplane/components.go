package controlplane

import (
	"context"
	"fmt"

	"fairway/lab/state"
	"fairway/lab/topology"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	manageropts "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleropts "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// runManager goes around kube-controller-manager's own command, which would
// install a second signal handler and panic.
func runManager(ctx context.Context, dir state.Dir, f topology.Family) error {
	opts, err := manageropts.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	all, disabled, aliases := manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases()
	flags := opts.Flags(all, disabled, aliases)
	if err := parse("kube-controller-manager", flags, managerFlags(dir, f)); err != nil {
		return err
	}
	opts.ParsedFlags = &flags
	cfg, err := opts.Config(ctx, all, disabled, aliases)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return manager.Run(ctx, cfg.Complete())
}

// runScheduler goes around kube-scheduler's own command for the same reason.
func runScheduler(ctx context.Context, dir state.Dir) error {
	opts := scheduleropts.NewOptions()
	if err := parse("kube-scheduler", *opts.Flags, schedulerFlags(dir)); err != nil {
		return err
	}
	cfg, sched, err := scheduler.Setup(ctx, opts)
	if err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return scheduler.Run(ctx, cfg, sched)
}

func parse(name string, sets cliflag.NamedFlagSets, args []string) error {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return nil
}
