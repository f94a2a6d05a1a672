// Command fairway makes Kubernetes Services and Ingresses reachable, and shows how:
// service proxy, cluster DNS, load balancer addresses and Ingress in one program. This
// package reads flags and the configuration file and wires the parts; it decides
// nothing about traffic.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := root().ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "fairway:", err)
		os.Exit(2)
	}
}

// exitCode is an error that says everything by its number: 1 is "found something"
// (drift, a packet that does not arrive), 2 is "could not do it".
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "fairway",
		Short: "Makes Kubernetes Services and Ingresses reachable, and shows how",
		Long: `Fairway is the node's service proxy, cluster DNS, load balancer and Ingress
controller in one program. It reads the objects and the configuration you have.

  fairway run                          on a node of a cluster
  fairway run --manifests DIR          on any Linux machine, from files
  fairway trace --from pod/shop/web-1 --to http://cart.shop/items
                                       why a packet, a name or a request does (not) arrive
  fairway compile -f services.yaml     print the rules, change nothing`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(runCommand(), compileCommand(), diffCommand(), traceCommand(), analyseCommand(), cleanupCommand(), versionCommand())
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			goVersion := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = " " + info.GoVersion
			}
			fmt.Fprintln(c.OutOrStdout(), "fairway "+version+goVersion)
		},
	}
}
