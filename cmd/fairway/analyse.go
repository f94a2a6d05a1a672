package main

import (
	"fmt"
	"text/tabwriter"

	"fairway/ingress"

	"github.com/spf13/cobra"
)

func analyseCommand() *cobra.Command {
	var s source
	c := &cobra.Command{
		Use:   "analyse -f PATH",
		Short: "Say what each Ingress annotation will do here: same, differs, refused, ignored",
		Long: `Analyse reads Ingresses, in files also those of the versions extensions/v1beta1 and
networking.k8s.io/v1beta1, and says of each annotation what it will do here. The exit
code is 1 when something would be refused.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := s.load(c, false)
			if err != nil {
				return err
			}
			defer cl.finish(c)
			return cl.analyse(c, s.output)
		},
	}
	s.flags(c, true)
	return c
}

func (cl *cluster) analyse(c *cobra.Command, output string) error {
	cl.table() // its Problems belong to the answer
	type row struct {
		Ingress string
		ingress.Verdict
	}
	var rows []row
	refused := false
	for _, ing := range cl.snap.Ingresses {
		for _, v := range ingress.Analyse(ing, cl.config.ingress()) {
			rows = append(rows, row{ing.Name.String(), v})
			refused = refused || v.Effect == ingress.Refused
		}
	}
	if output == "json" {
		if err := printJSON(c.OutOrStdout(), rows); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "INGRESS\tANNOTATION\tEFFECT\tWHY")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Ingress, r.Key, r.Effect, r.Note)
		}
		w.Flush()
	}
	if refused {
		return exitCode(1)
	}
	return nil
}
