package proxy

import (
	"fmt"
	"strings"

	"fairway/model"
	"fairway/packet"
)

// scheduler is the one a Service gets: its own annotation's, else the node's, else the
// mode's default. What the mode does not have is returned as refused.
func (c Config) scheduler(svc *model.Service) (_ Scheduler, refused string) {
	byDefault := c.Mode.Traits().Schedulers[0]
	asked, ok := svc.Annotations[SchedulerAnnotation]
	if !ok {
		if c.Scheduler != "" && c.Mode.Can(c.Scheduler) {
			return c.Scheduler, ""
		}
		return byDefault, ""
	}
	if s, known := ParseScheduler(asked); known && c.Mode.Can(s) {
		return s, ""
	}
	return byDefault, asked
}

// schedulerProblems tells each Service once what its scheduler became, and which of its
// ports the mode cannot serve.
func (p *Plan) schedulerProblems() []model.Problem {
	out := p.protocolProblems()
	var last model.Name
	for _, sp := range p.Ports {
		if sp.refused == "" || sp.Service == last {
			continue
		}
		last = sp.Service
		out = append(out, model.Problem{Object: sp.Ref(), Field: "metadata.annotations[" + SchedulerAnnotation + "]",
			Reason: "SchedulerUnsupported", Message: fmt.Sprintf("%q is no scheduler of this mode, %s is used; it has %s",
				sp.refused, sp.Scheduler, p.Config.Mode.schedulerNames())})
	}
	return out
}

func (m Mode) schedulerNames() string {
	var names []string
	for _, s := range m.Traits().Schedulers {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func (p *Plan) protocolProblems() []model.Problem {
	var out []model.Problem
	if !p.Config.Mode.Traits().NoSCTP {
		return nil
	}
	for _, sp := range p.Ports {
		if sp.Proto == packet.SCTP {
			out = append(out, model.Problem{Object: sp.Ref(), Field: "spec.ports", Reason: "ProtocolNotServed",
				Message: fmt.Sprintf("port %d/sctp: mode %s serves TCP and UDP; modes nftables, iptables and ipvs have SCTP too", sp.Port, p.Config.Mode)})
		}
	}
	return out
}
