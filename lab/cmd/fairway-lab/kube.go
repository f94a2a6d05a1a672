package main

import (
	"fmt"
	"os"
	"strings"

	"fairway/lab/state"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	proxyapp "k8s.io/kubernetes/cmd/kube-proxy/app"
)

// passThrough recognises a command whose arguments are not ours to read. Only
// --name and --state-root may stand before it.
func passThrough(args []string, command string) (state.Dir, []string, bool) {
	where := place{name: defaultName(), root: defaultRoot()}
	for len(args) > 0 {
		name, value, joined := strings.Cut(args[0], "=")
		at := map[string]*string{"--name": &where.name, "--state-root": &where.root}[name]
		switch {
		case args[0] == command:
			return where.dir(), args[1:], true
		case at == nil:
			return state.Dir{}, nil, false
		case joined:
			*at, args = value, args[1:]
		case len(args) > 1:
			*at, args = args[1], args[2:]
		default:
			return state.Dir{}, nil, false
		}
	}
	return state.Dir{}, nil, false
}

// labKubectl is kubectl with the lab's administrator.
func labKubectl(dir state.Dir, args []string) int {
	if _, err := os.Stat(dir.Kubeconfig()); err != nil {
		fmt.Fprintf(os.Stderr, "fairway-lab: there is no lab %s (fairway-lab up makes it)\n", dir.Name)
		return 1
	}
	if err := os.Setenv("KUBECONFIG", dir.Kubeconfig()); err != nil {
		fmt.Fprintln(os.Stderr, "fairway-lab:", err)
		return 1
	}
	os.Args = append([]string{"kubectl"}, args...)
	return kubectl()
}

// kubectl is kubectl as its own main function makes it.
func kubectl() int {
	if _, err := logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
	}
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func kubeProxy(args []string) int {
	os.Args = append([]string{"kube-proxy"}, args...)
	return cli.Run(proxyapp.NewProxyCommand())
}

// The two commands below only make help complete; main never gets to them.

func kubectlHelp() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ...",
		Short:              "Run kubectl as the lab's administrator (--name goes before kubectl)",
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return errOrder },
	}
}

func kubeProxyHelp() *cobra.Command {
	return &cobra.Command{
		Use:                "kube-proxy ...",
		Short:              "Run kube-proxy, for comparison with Fairway",
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return errOrder },
	}
}
