package main

import (
	"context"
	"fmt"
	"time"

	"fairway/model"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// staleAfter is when it is said that what is served is old: an API server is heard of
	// each kind about once a minute, and a silent watch is asked for anew after five.
	staleAfter = 6 * time.Minute
	ageEvery   = 15 * time.Second
)

// openAge tells how old what is served may be.
func (d *daemon) openAge() {
	d.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairway_api_age_seconds",
		Help: "Time since the API server was heard of the kind it is silent of for longest: what is served is at most so old."},
		func() float64 { _, age := d.api.Age(); return age.Seconds() }))
	d.jobs = append(d.jobs, func(ctx context.Context) error {
		tick := time.NewTicker(ageEvery)
		defer tick.Stop()
		for stale := false; ; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if now := len(d.staleData()) > 0; now != stale {
				stale = now
				d.loop.Wake() // a pass reports it
			}
		}
	})
}

// staleData is the node's Problem while the API server says nothing.
func (d *daemon) staleData() []model.Problem {
	if d.api == nil {
		return nil
	}
	kind, age := d.api.Age()
	if age < staleAfter {
		return nil
	}
	return []model.Problem{{Object: model.Ref{Kind: "Node", Name: model.Name{Name: d.cfg.raw.Node}}, Reason: "DataStale",
		Message: fmt.Sprintf("nothing was heard of %s from the API server %s for more than %s; rules, names and addresses stay as they were then. Is it reached from this node, and is the credential still good?", kind, d.from, staleAfter)}}
}
