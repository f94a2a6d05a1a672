package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"fairway/dns"
	"fairway/kube"
	"fairway/loop"
	"fairway/model"
)

// corefileEvery is how often the Corefile is looked at again; CoreDNS's reload takes 30 s.
const corefileEvery = 5 * time.Second

// corefile is a CoreDNS configuration, read in place of the dns section's own fields.
type corefile struct {
	text     string
	dns      dns.Config
	forward  dns.ForwardConfig
	warnings []model.Problem // what is not honoured, about the node
}

// readCorefile reads path; what cannot be right is an error that gives the lines.
func readCorefile(path, node string) (*corefile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("dns.corefile: %w", err)
	}
	return parseCorefile(path, string(data), node)
}

func parseCorefile(path, text, node string) (*corefile, error) {
	c := &corefile{text: text}
	var problems []model.Problem
	c.dns, c.forward, problems = dns.ParseCorefile(text)
	var errs []error
	for _, p := range problems {
		if p.Reason == dns.InvalidCorefile {
			errs = append(errs, fmt.Errorf("dns.corefile: %s %s: %s", path, p.Field, p.Message))
			continue
		}
		c.warnings = append(c.warnings, model.Problem{Object: model.Ref{Kind: "Node", Name: model.Name{Name: node}},
			Field: "Corefile " + p.Field, Reason: "ConfigurationNotHonoured", Message: p.Message})
	}
	return c, errors.Join(errs...)
}

// takeWarnings keeps what the Corefile asks for in vain, and logs it.
func (d *daemon) takeWarnings(cfg config) {
	if cfg.corefile == nil {
		return
	}
	d.corefileProblems.Store(&cfg.corefile.warnings)
	for _, p := range cfg.corefile.warnings {
		kube.LogProblem(slog.Default(), p)
	}
}

// followCorefile takes a changed Corefile over, until ctx ends. A bad one is said and
// changes nothing.
func (d *daemon) followCorefile(ctx context.Context, names *loop.Names) {
	path, text, read := d.cfg.raw.DNS.Corefile, d.cfg.corefile.text, true
	tick := time.NewTicker(corefileEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		data, err := os.ReadFile(path)
		if err == nil && read && string(data) == text {
			continue
		}
		if read = err == nil; read {
			text = string(data)
		}
		d.takeCorefile(names, text, err)
	}
}

// takeCorefile puts a new text, or why there is none, into force.
func (d *daemon) takeCorefile(names *loop.Names, text string, err error) {
	before := d.corefileProblems.Load()
	var c *corefile
	if err == nil {
		c, err = parseCorefile(d.cfg.raw.DNS.Corefile, text, d.cfg.raw.Node)
	}
	if err == nil && needsPods(c.dns) && d.api != nil && !d.api.Kinds.Pods {
		err = errors.New("dns.corefile: pods verified and autopath need the Pods, which are not followed; restart for it")
	}
	var now []model.Problem
	if err != nil {
		now = []model.Problem{{Object: model.Ref{Kind: "Node", Name: model.Name{Name: d.cfg.raw.Node}}, Field: "Corefile",
			Reason: dns.InvalidCorefile, Message: err.Error() + "; the last good one stays in force"}}
	} else {
		now = c.warnings
		names.Reconfigure(d.cfg.ofCorefile(c))
		d.dns.SetForward(c.forward)
		d.loop.Wake() // the next pass makes the zone
		slog.Info("dns: the Corefile changed and is in force", "file", d.cfg.raw.DNS.Corefile)
	}
	if before != nil && fmt.Sprint(*before) == fmt.Sprint(now) {
		return
	}
	if err != nil {
		d.dns.ReloadFailed()
	}
	d.corefileProblems.Store(&now)
	for _, p := range now {
		kube.LogProblem(slog.Default(), p)
	}
	d.out.sink.Logged(now)
	d.loop.Wake()
}

// needsPods tells whether the zone cannot do without the Pods themselves.
func needsPods(c dns.Config) bool { return c.Pods == dns.PodsVerified || c.AutoPath }

// ofCorefile is the zone's configuration as the Corefile has it, with what only this
// program's own configuration knows.
func (c config) ofCorefile(f *corefile) dns.Config {
	out := f.dns
	own := c.ownDNS()
	out.DNSService, out.CompleteSvc, out.HostSearch = own.DNSService, own.CompleteSvc, own.HostSearch
	return out
}
