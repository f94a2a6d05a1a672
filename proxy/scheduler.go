package proxy

import (
	"fmt"
	"strings"

	"fairway/model"
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

// schedulerProblems tells each Service once what its scheduler became.
func (p *Plan) schedulerProblems() []model.Problem {
	var out []model.Problem
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
