package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"fairway/kernel"
	"fairway/loop"
	"fairway/model"
	"fairway/proxy"
)

// settings are the kernel's and the process's that kube-proxy sets too.
func (c config) conntrack() kernel.ConntrackSettings {
	t := c.raw.Proxy.Conntrack
	return kernel.ConntrackSettings{
		MaxPerCore: int(t.MaxPerCore), Min: int(t.Min), TCPBeLiberal: t.TCPBeLiberal,
		TCPEstablished: t.TCPEstablishedTimeout.Duration, TCPCloseWait: t.TCPCloseWaitTimeout.Duration,
		UDP: t.UDPTimeout.Duration, UDPStream: t.UDPStreamTimeout.Duration,
	}
}

// setNode applies them; what cannot be set is a Problem, never the end.
func (c config) setNode() []model.Problem {
	var problems []model.Problem
	for _, err := range c.conntrack().Apply() {
		problems = append(problems, model.Problem{Object: nodeRef(c.raw.Node), Field: "proxy.conntrack", Reason: "SettingNotApplied",
			Message: "the kernel keeps its own value: " + err.Error()})
	}
	if s := c.raw.Proxy.OOMScoreAdj; s != nil {
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(int(*s))), 0o644); err != nil {
			problems = append(problems, model.Problem{Object: nodeRef(c.raw.Node), Field: "proxy.oomScoreAdj", Reason: "SettingNotApplied",
				Message: fmt.Sprintf("the process keeps its own: %v", err)})
		}
	}
	return problems
}

// setNode changes the node's settings, now that the mode is known to work here: a start
// that is refused leaves them as they were. The iptables mode looks at one of them when it
// is opened, so it is opened again.
func (d *daemon) setNode(ctx context.Context, b loop.Backend) (loop.Backend, error) {
	d.note(d.cfg.setNode()...)
	if b.Mode() != string(proxy.IPTables) || !d.cfg.raw.Proxy.Conntrack.TCPBeLiberal {
		return b, nil
	}
	b, _, err := openMode(ctx, b.Mode(), d.cfg.raw.Node)
	if err != nil {
		return nil, fmt.Errorf("proxy mode %s: %w", proxy.IPTables, err)
	}
	return b, tune(b, d.cfg)
}

// initOnly is kube-proxy's --init-only: what needs more than CAP_NET_ADMIN.
func initOnly(c config) error {
	var errs []error
	for _, p := range c.setNode() {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}
