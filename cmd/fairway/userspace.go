package main

import (
	"context"
	"slices"

	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/userspace"
	"fairway/server/stream"
	"fairway/trace"
)

// userspaceRoom is the mode of the proxy process.
func userspaceRoom() modeRoom {
	compile := func(p *proxy.Plan) *userspace.Program { return userspace.Compile(nil, p, true, userspace.Carry{}) }
	return modeRoom{
		name: proxy.Userspace,
		open: func(_ context.Context, node string) (loop.Backend, []model.Problem, error) {
			return loop.OpenUserspace(0, nil, node)
		},
		text:   func(p *proxy.Plan) string { return compile(p).Text() },
		rules:  func(p *proxy.Plan) trace.Rules { return compile(p) },
		drift:  func(_ context.Context, p *proxy.Plan) ([]string, error) { return driftUserspace(p) },
		absent: func(error) bool { return false },
	}
}

// withLocalhost has rules that do not reach loopback traced with the listeners there.
func withLocalhost(rules trace.Rules, plan *proxy.Plan) trace.Rules {
	if !plan.Config.LocalhostRelay {
		return rules
	}
	return userspace.Relayed{Rules: rules, Listeners: userspace.Localhost(nil, plan)}
}

// relayLocalhost serves NodePorts on loopback beside rules that do not reach it.
func (d *daemon) relayLocalhost() {
	if !d.cfg.proxy.LocalhostRelay {
		return
	}
	stage := &loop.Localhost{Server: stream.New(stream.Settings{}), Wake: d.loop.Wake}
	d.loop.Stages = append(d.loop.Stages, stage)
	d.alsoStanding(stage)
	d.servers = append(d.servers, func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lameDuck+drainTime)
		defer cancel()
		stage.Server.Shutdown(ctx)
		return nil
	})
}

// standing is a part that has Problems which hold from pass to pass.
type standing interface{ Standing() []model.Problem }

func (d *daemon) alsoStanding(s standing) {
	others := d.loop.Standing
	d.loop.Standing = func() []model.Problem { return slices.Concat(others(), s.Standing()) }
}

// leaver is a backend that has to say good-bye: what it carries ends with the process.
type leaver interface {
	Leave(ctx context.Context, plan *proxy.Plan) error
}

// leave lets the backend go once a stop was asked for.
func (d *daemon) leave(b leaver) {
	d.servers = append(d.servers, func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lameDuck+drainTime)
		defer cancel()
		return b.Leave(ctx, d.loop.Plan())
	})
}
