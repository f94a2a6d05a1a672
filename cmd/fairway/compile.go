package main

import (
	"fmt"
	"slices"
	"strings"

	"fairway/lb"
	"fairway/proxy"

	"github.com/spf13/cobra"
)

func compileCommand() *cobra.Command {
	var s source
	var part string
	c := &cobra.Command{
		Use:   "compile -f PATH",
		Short: "Print what a node's kernel, DNS, addresses and routes would be; change nothing",
		Long: `Compile prints the program a node would run, in its own language: an nft script or
an iptables-restore file, zone lines, addresses, routes. It needs no privileges and no
cluster: objects come from files, or from an API server with --kubeconfig. The exit code
is 1 when part of the input could not be read.

  kubectl get svc,endpointslices,nodes -A -o yaml | fairway compile -f - --node worker-1
  fairway compile -f shop.yaml --backend iptables --node worker-1
  fairway compile -f shop.yaml --part dns`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := s.load(c, false)
			if err != nil {
				return err
			}
			defer cl.finish(c, nil)
			if s.node == "" && len(cl.snap.Nodes) > 1 && (part == "proxy" || part == "plan") {
				fmt.Fprintf(c.ErrOrStderr(), "note: no --node: these are the rules of a node that is none of %s and has no address\n", nodeNames(cl.snap))
			}
			if s.node == "" && len(cl.snap.Nodes) == 0 && len(cl.snap.Services) > 0 && (part == "proxy" || part == "plan") {
				fmt.Fprintln(c.ErrOrStderr(), "note: no Node among the objects: these are the rules of a node without addresses, where run takes the machine's; mode userspace cannot serve without one")
			}
			text, err := cl.part(part)
			if err != nil {
				return err
			}
			if s.output == "json" {
				err = printJSON(c.OutOrStdout(), map[string]any{"part": part, "program": strings.Split(strings.TrimSuffix(text, "\n"), "\n"), "problems": cl.problems})
			} else {
				_, err = fmt.Fprint(c.OutOrStdout(), text)
			}
			if err == nil && slices.ContainsFunc(cl.problems, unreadable) {
				return exitCode(1)
			}
			return err
		},
	}
	s.flags(c, true)
	c.Flags().StringVar(&part, "part", "proxy", "what to print: plan, proxy, dns, lb or ingress")
	return c
}

func (cl *cluster) part(name string) (string, error) {
	switch name {
	case "plan":
		return cl.plan.Text(), nil
	case "proxy":
		return program(cl.config.raw.Proxy.Mode, cl.plan), nil
	case "dns":
		return cl.zone().Text(), nil
	case "lb":
		result, problems := lb.Assign(cl.snap, cl.config.lb())
		list, more := lb.Announce(cl.snap, cl.config.lb(), nil)
		cl.problems = append(append(cl.problems, problems...), more...)
		return lb.Text(result, list), nil
	case "ingress":
		return cl.table().Text(), nil
	}
	return "", fmt.Errorf("--part %s: want plan, proxy, dns, lb or ingress", name)
}

// program is the text of the mode's rules.
func program(mode string, plan *proxy.Plan) string {
	m, err := modeOf(mode)
	if err != nil {
		return ""
	}
	return m.text(plan)
}
