package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"fairway/ingress"
	"fairway/model"

	"github.com/spf13/cobra"
)

func analyseCommand() *cobra.Command {
	var s source
	c := &cobra.Command{
		Use:   "analyse -f PATH",
		Short: "Say what each Ingress annotation will do here: same, differs, refused, ignored",
		Long: `Analyse reads Ingresses, in files also those of the versions extensions/v1beta1 and
networking.k8s.io/v1beta1, and says of each annotation what it will do here:

  same      what it does in ingress-nginx
  differs   something like it; WHY says what is different
  refused   the Ingress's paths answer 503: serving without it would be unsafe
  ignored   nothing; the Ingress is served as if it were not there

The exit code is 1 when something would be refused or could not be read.

  kubectl get ingress -A -o yaml | fairway analyse -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := s.load(c, false)
			if err != nil {
				return err
			}
			// Other Problems, of Services and classes that are not in the files, are not asked for.
			defer cl.finish(c, func(p model.Problem) bool { return strings.HasPrefix(p.Field, "metadata.annotations") })
			return cl.analyse(c, s.output)
		},
	}
	s.flags(c, true)
	return c
}

func (cl *cluster) analyse(c *cobra.Command, output string) error {
	cl.table() // its Problems belong to the answer
	type row struct {
		Ingress    string `json:"ingress"`
		Annotation string `json:"annotation"`
		Value      string `json:"value"`
		Effect     string `json:"effect"`
		Why        string `json:"why,omitempty"`
	}
	rows := []row{}
	refused := false
	for _, ing := range cl.snap.Ingresses {
		for _, v := range ingress.Analyse(ing, cl.config.ingress()) {
			rows = append(rows, row{ing.Name.String(), v.Key, v.Value, string(v.Effect), v.Note})
			refused = refused || v.Effect == ingress.Refused
		}
	}
	if output == "json" {
		if err := printJSON(c.OutOrStdout(), rows); err != nil {
			return err
		}
	} else if len(rows) == 0 {
		fmt.Fprintf(c.OutOrStdout(), "Ingresses: %d, none with an annotation for an Ingress controller\n", len(cl.snap.Ingresses))
	} else {
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "INGRESS\tANNOTATION\tEFFECT\tWHY")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Ingress, r.Annotation, r.Effect, r.Why)
		}
		w.Flush()
	}
	if refused || slices.ContainsFunc(cl.problems, unreadable) {
		return exitCode(1)
	}
	return nil
}
