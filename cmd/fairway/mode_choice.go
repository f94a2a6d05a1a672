package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"fairway/kernel"
	"fairway/kube"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
)

// chooseMode opens the backend of the proxy mode asked for or, when the node lacks what
// it needs and a mode to fall back to is named, of that one. The configuration returned
// is that of the mode in force.
func (d *daemon) chooseMode(ctx context.Context, cfg config) (config, loop.Backend, error) {
	if !cfg.roles["proxy"] {
		return cfg, nil, nil
	}
	p := cfg.raw.Proxy
	b, problems, err := openMode(ctx, p.Mode, cfg.raw.Node)
	if err == nil {
		err = tune(b, cfg)
	}
	if err == nil {
		d.note(problems...)
		return cfg, b, nil
	}
	if p.FallbackMode == "" || p.FallbackMode == p.Mode {
		return cfg, nil, fmt.Errorf("proxy mode %s cannot run on this node: %w (another is taken with --fallback-mode)", p.Mode, err)
	}
	next, dropped, err2 := fallback(cfg)
	if err2 == nil {
		b, problems, err2 = openMode(ctx, p.FallbackMode, cfg.raw.Node)
	}
	if err2 == nil {
		err2 = tune(b, next)
	}
	if err2 != nil {
		return cfg, nil, fmt.Errorf("proxy mode %s cannot run on this node: %w; nor can %s, the one to fall back to: %w", p.Mode, err, p.FallbackMode, err2)
	}
	d.note(model.Problem{Object: nodeRef(cfg.raw.Node), Field: "proxy.mode", Reason: "ProxyModeFallback",
		Message: fmt.Sprintf("mode %s cannot run here (%v); mode %s is in force%s", p.Mode, err, p.FallbackMode, dropped)})
	d.note(problems...)
	return next, b, nil
}

// fallback is the configuration in the mode to fall back to. A scheduler that mode does
// not have is left out, as it is for a Service that asks for one.
func fallback(cfg config) (next config, dropped string, err error) {
	raw := cfg.raw
	raw.Proxy.Mode = raw.Proxy.FallbackMode
	mode := proxy.Mode(raw.Proxy.Mode)
	if sch, known := proxy.ParseScheduler(raw.Proxy.Scheduler); known && !mode.Can(sch) {
		dropped = fmt.Sprintf(", with its own scheduler %s for %s", mode.Traits().Schedulers[0], raw.Proxy.Scheduler)
		raw.Proxy.Scheduler = ""
	}
	next, err = raw.typed()
	next.level, next.flags = cfg.level, cfg.flags
	return next, dropped, err
}

func nodeRef(name string) model.Ref {
	return model.Ref{Kind: "Node", Name: model.Name{Name: name}}
}

// note keeps Problems of the node that hold as long as this process, and logs them now:
// there may be no API server to write events to yet.
func (d *daemon) note(problems ...model.Problem) {
	for _, p := range problems {
		kube.LogProblem(slog.Default(), p)
	}
	d.standing = append(d.standing, problems...)
	if d.out != nil {
		d.out.sink.Logged(problems)
	}
}

// known are the Problems with the configuration, which are told before any pass.
func (d *daemon) known() []model.Problem {
	out := d.standing
	if list := d.corefileProblems.Load(); list != nil {
		out = append(out[:len(out):len(out)], *list...)
	}
	return out
}

// standingProblems are the node's Problems that no pass finds.
func (d *daemon) standingProblems() []model.Problem {
	out := slices.Concat(d.known(), d.dnsPortProblems(), d.staleData())
	for _, f := range d.ports.Failures() {
		out = append(out[:len(out):len(out)], model.Problem{Object: model.Ref{Kind: "Service", Name: f.Service, UID: f.UID},
			Field: "spec.healthCheckNodePort", Reason: "FailedToStartServiceHealthcheck",
			Message: fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v", d.cfg.raw.Node, f.Service, f.Port, f.Err)})
	}
	return out
}

// removeOthers cleans up what other modes, or a kube-proxy, left on the node.
func removeOthers(ctx context.Context, mode, node string) {
	for _, m := range modes() {
		if string(m.name) == mode {
			continue
		}
		if err := m.cleanup(ctx, node); err != nil {
			slog.Debug("rules of another mode not looked at", "mode", m.name, "err", err)
		}
	}
	if removed, err := kernel.RemoveKubeProxyTables(0); errors.Is(err, os.ErrPermission) {
		slog.Debug("kube-proxy's nftables tables not looked at", "err", err) // as a normal user
	} else if err != nil {
		slog.Warn("kube-proxy's nftables tables not removed", "err", err)
	} else if len(removed) > 0 {
		slog.Info("kube-proxy's nftables tables are removed: these rules have taken their place", "tables", removed)
	}
}

// cleanup removes the mode's rules; a mode whose tools the node lacks never ran here.
func (m modeRoom) cleanup(ctx context.Context, node string) error {
	if m.remove != nil {
		return m.remove(ctx)
	}
	b, _, err := m.open(ctx, node)
	if err != nil && m.absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.Cleanup(ctx)
}

// removeIPTables removes the rules of both programs called iptables, whichever is in use
// now: the node's may have been changed since.
func removeIPTables(ctx context.Context) error {
	var errs []error
	found := false
	for _, v6 := range []bool{false, true} {
		hands, err := kernel.IPTablesLeftovers(ctx, v6, 0)
		errs = append(errs, err)
		for _, h := range hands {
			found = true
			if err := loop.CleanIPTables(ctx, h, v6); err != nil {
				errs = append(errs, fmt.Errorf("variant %s: %w", h.Variant(), err))
			}
		}
	}
	if found {
		errs = append(errs, kernel.RemoveEmptyTables(0))
	}
	return errors.Join(errs...)
}
