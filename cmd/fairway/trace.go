package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"fairway/model"
	"fairway/packet"
	"fairway/proxy"
	"fairway/trace"

	"github.com/spf13/cobra"
)

func traceCommand() *cobra.Command {
	s := source{inForce: true}
	var from, to, proto string
	c := &cobra.Command{
		Use:   "trace --from WHERE --to WHERE",
		Short: "Say why a packet, a name or a request does (not) arrive, step by step",
		Long: `Trace walks the way of a packet through the rules of the mode in force, of a name
through the search list, of a URL through DNS, rules and Ingress routes. It reads objects
from files or from an API server and sends nothing. The exit code is 1 when it does not
arrive, and 0 when it leaves the cluster for a name that only the upstream resolver knows.

  --from ADDR | pod/NAMESPACE/NAME | node/NAME | outside
  --to   ADDR:PORT | svc/NAMESPACE/NAME:PORT | URL | NAME[:PORT]

  fairway trace --kubeconfig ~/.kube/config --from pod/shop/web-1 --to svc/shop/cart:80
  fairway trace -f cluster.yaml --from outside --to 192.0.2.10:30080
  fairway trace -f cluster.yaml --from pod/shop/web-1 --to http://cart/items`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := s.load(c, true)
			if err != nil {
				return err
			}
			p, err := packet.ParseProtocol(proto)
			if err != nil {
				return fmt.Errorf("--proto: %w", err)
			}
			start, err := trace.ParseFrom(cl.snap, from)
			if err != nil {
				return err
			}
			note, err := cl.meet(s.node, start, to)
			if err != nil {
				return err
			}
			report, err := cl.world(c.Context()).Trace(start, to, p)
			if err != nil {
				return err
			}
			text := report.Text()
			if note != "" && strings.Contains(text, "rules of node") {
				fmt.Fprintln(c.ErrOrStderr(), "note:", note)
			}
			defer cl.finish(c, func(p model.Problem) bool { return strings.Contains(text, p.Object.Name.String()) })
			return cl.printReport(c, report, s.output)
		},
	}
	s.flags(c, true)
	c.Flags().StringVar(&from, "from", "outside", "where the packet starts")
	c.Flags().StringVar(&to, "to", "", "where it should go")
	c.Flags().StringVar(&proto, "proto", "tcp", "tcp, udp or sctp")
	c.MarkFlagRequired("to")
	return c
}

// meet makes the plan of the node whose rules the packet meets first, which is asked if
// that is named; the note says what had to be guessed.
func (cl *cluster) meet(asked string, start trace.From, to string) (note string, err error) {
	switch {
	case cl.standIn:
		return cl.meetHere(cmp.Or(asked, start.Node, cl.config.raw.Node))
	case asked != "":
		return "", nil // load has made it
	case start.Node != "":
		return "", cl.planFor(start.Node)
	}
	node, note := cl.nodeFor(to)
	return note, cl.planFor(node)
}

func (cl *cluster) world(ctx context.Context) *trace.World {
	mode := cl.config.raw.Proxy.Mode
	return &trace.World{
		Snap: cl.snap, Plan: cl.plan, Mode: mode, Rules: rules(mode, cl.plan),
		Zone: cl.zone(), Table: cl.table(), LB: cl.config.lb(), IngressService: cl.config.publishService,
		PodPorts: cl.podPorts(ctx),
		Node: func(name string) (*proxy.Plan, trace.Rules) {
			other := *cl
			if err := other.planFor(name); err != nil {
				return cl.plan, rules(mode, cl.plan)
			}
			return other.plan, rules(mode, other.plan)
		},
	}
}

func rules(mode string, plan *proxy.Plan) trace.Rules {
	m, err := modeOf(mode)
	if err != nil {
		return nil // typed has refused it
	}
	return withLocalhost(m.rules(plan), plan)
}

func (cl *cluster) printReport(c *cobra.Command, r *trace.Report, output string) error {
	if output == "json" {
		if err := printJSON(c.OutOrStdout(), r); err != nil {
			return err
		}
	} else {
		fmt.Fprint(c.OutOrStdout(), r.Text())
	}
	if !r.Arrives && !r.Leaves {
		return exitCode(1)
	}
	return nil
}
