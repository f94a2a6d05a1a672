// Command fairway-lab brings a Kubernetes cluster up on one machine, out of
// real components and network namespaces. In come flags; out go processes,
// lines of progress and an exit code. Called as "kubectl" it is kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// init keeps the process' first thread to main alone. Work inside a lab's
// network namespace changes a thread for good, and the first one is what
// /proc/PID shows of the whole process.
func init() { runtime.LockOSThread() }

func main() {
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(kubectl())
	}
	// Two commands have flags of their own that ours must not be mixed with.
	if lab, rest, ok := passThrough(os.Args[1:], "kubectl"); ok {
		os.Exit(labKubectl(lab, rest))
	}
	if _, rest, ok := passThrough(os.Args[1:], "kube-proxy"); ok {
		os.Exit(kubeProxy(rest))
	}
	os.Exit(run())
}

// exitCode ends the program with a command's own exit code.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func run() int {
	// Installed before the first wait: an interrupted `up` takes down what it
	// has made.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := rootCommand().ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "fairway-lab:", err)
	return 1
}

func rootCommand() *cobra.Command {
	var where place
	root := &cobra.Command{
		Use:   "fairway-lab",
		Short: "A Kubernetes cluster on this machine, made of real components and network namespaces",
		Long: `A Kubernetes cluster on this machine: etcd, kube-apiserver, kube-controller-manager
and kube-scheduler in one process, and nodes that are network namespaces on one
LAN, each with the real kubelet. Containers are programs of this machine in
namespaces; no image is ever pulled. Fairway runs on every node in kube-proxy's
place.

Nothing is added to the machine's own network, and no route leads out of the
lab. The machine reaches in by ports on 127.0.0.1, which "status" shows.

  fairway-lab up                       three nodes, Fairway, nftables
  fairway-lab kubectl get nodes        kubectl is built in
  fairway-lab kubectl create deployment web --image=nginx
  fairway-lab kubectl create service nodeport web --tcp=80 --node-port=30080
  fairway-lab kubectl rollout status deployment web
  fairway-lab exec client -- curl -s --retry 5 --retry-connrefused http://172.30.0.11:30080
  fairway-lab down`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Kubernetes' libraries leave flags of theirs here, and cobra shows them.
	pflag.CommandLine.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	where.addFlags(root.PersistentFlags())
	root.AddCommand(upCommand(&where), downCommand(&where), statusCommand(&where), listCommand(&where),
		execCommand(&where), logsCommand(&where), addNodeCommand(&where), stopNodeCommand(&where),
		startNodeCommand(&where), kubectlHelp(), kubeProxyHelp(), daemonCommand(&where))
	return root
}
