package loop

import (
	"context"
	"slices"

	"fairway/ingress"
	"fairway/model"
	"fairway/proxy"
)

// Routes is the Ingress stage.
type Routes struct {
	Config ingress.Config
	// Set hands the table to the server.
	Set func(*ingress.Table)
	// Follow asks the source for the Secrets the routes refer to and tells whether
	// all have been read; nil when the source has everything at once.
	Follow func(ctx context.Context, secrets []model.Name) bool
	// Service is the Service in front of the controller, whose addresses Ingress
	// status shows; Addresses stands in for it.
	Service   model.Name
	Addresses []string
	// Status is told the Ingresses whose status.loadBalancer should change.
	Status func([]ingress.Status)

	table  *ingress.Table
	served bool // the first table whose Secrets had all been read was set
}

// Withdraw does nothing: a route leads straight to endpoints, not through rules.
func (r *Routes) Withdraw(*model.Snapshot) {}

// Publish serves the routes of snap.
func (r *Routes) Publish(ctx context.Context, snap *model.Snapshot, _ *proxy.Plan) []model.Problem {
	cfg := r.Config
	cfg.PublishedAddresses = r.addresses(snap)
	table, problems := ingress.Build(r.table, snap, cfg)
	complete := r.Follow == nil || r.Follow(ctx, table.SecretRefs())
	if !complete {
		// A Secret still on its way is not missing; the pass after it arrives will say.
		problems = slices.DeleteFunc(problems, func(p model.Problem) bool { return p.Reason == "MissingSecret" })
	}
	r.table = table
	// At a start nothing is served rather than hosts with the wrong certificate.
	if r.served = r.served || complete; r.served {
		r.Set(table)
	}
	if r.Status != nil {
		r.Status(table.StatusChanges())
	}
	return problems
}

func (r *Routes) addresses(snap *model.Snapshot) []string {
	svc := snap.Service(r.Service)
	if svc == nil {
		return r.Addresses
	}
	var out []string
	for _, in := range svc.Ingress {
		if in.IP.IsValid() {
			out = append(out, in.IP.String())
		} else if in.Hostname != "" {
			out = append(out, in.Hostname)
		}
	}
	for _, a := range svc.ExternalIPs {
		out = append(out, a.String())
	}
	if len(out) == 0 && svc.Type != model.LoadBalancer && len(svc.ClusterIPs) > 0 {
		out = append(out, svc.ClusterIPs[0].String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
