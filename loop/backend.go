// Package loop is the one goroutine that turns objects into traffic: events come in,
// are debounced, and run through Build, Plan, compile, diff and apply; what was done,
// and what could not be, goes out as acknowledged generations, status and Problems. It
// holds no policy: every decision is taken by the pure packages it calls.
package loop

import (
	"context"

	"fairway/model"
	"fairway/proxy"
)

// Backend programs one proxy mode. It remembers what it applied; it lists the kernel
// only in Audit and after a failure.
type Backend interface {
	// Mode is the name /proxyMode answers: nftables, iptables.
	Mode() string
	// Apply brings the kernel from the last applied program to plan's. Problems name
	// Services whose own part was refused while the rest was applied; an error means
	// the last good rules are still in force and Apply should be tried again.
	Apply(ctx context.Context, plan *proxy.Plan) ([]model.Problem, error)
	// Audit compares the kernel with the last applied program, repairs it, and
	// returns the differing lines (none is the normal case).
	Audit(ctx context.Context) ([]string, error)
	// Cleanup removes everything the backend ever makes.
	Cleanup(ctx context.Context) error
}
