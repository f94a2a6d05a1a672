package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairway/lb"
	"fairway/model"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// Report is everything one pass wants the world to know. It is the whole truth each
// time: a Problem that is missing is resolved.
type Report struct {
	// Problems are the cluster's, which every node finds alike; only the leader tells
	// them. Node are this node's own, told by the node itself.
	Problems []model.Problem
	Node     []model.Problem
	// Services and Ingresses are statuses to have; only the leader writes them.
	Services  []lb.Want
	Ingresses []IngressStatus
}

// IngressStatus is the status one Ingress should have.
type IngressStatus struct {
	Ingress   model.Ref
	Addrs     []netip.Addr
	Hostnames []string
}

// Publisher writes statuses, finalizers and events to the API server, from one
// goroutine. It writes only what differs. While the server is away everything is kept
// and written later; what was overtaken meanwhile is never written.
type Publisher struct {
	Services  coreclient.ServicesGetter
	Events    coreclient.EventsGetter
	Ingresses networkingclient.IngressesGetter
	Node      string
	Log       *slog.Logger // nil is slog.Default()

	mu        sync.Mutex
	leading   bool
	services  map[model.Name]lb.Want
	ingresses map[model.Name]IngressStatus
	done      map[task]string // fingerprint of what was written last
	cluster   ledger
	own       ledger
	queue     queue
}

// Logged says that Problems of the node have their line in the log already.
func (p *Publisher) Logged(problems []model.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own.wasLogged(problems)
}

// Publish takes over a report. It never waits for the API server.
func (p *Publisher) Publish(r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.services = make(map[model.Name]lb.Want, len(r.Services))
	for _, w := range r.Services {
		p.services[w.Service.Name] = w
	}
	p.ingresses = make(map[model.Name]IngressStatus, len(r.Ingresses))
	for _, s := range r.Ingresses {
		p.ingresses[s.Ingress.Name] = s
	}
	p.cluster.set(r.Problems)
	p.own.set(r.Node)
	p.logNews()
	p.enqueue()
}

// Lead tells whether this process is the leader. A new leader looks at everything
// anew: it does not know what the one before has written.
func (p *Publisher) Lead(leading bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading == leading {
		return
	}
	p.leading, p.done = leading, nil
	p.cluster.told = nil
	p.enqueue()
}

// enqueue adds a task for everything that is not as last written.
func (p *Publisher) enqueue() {
	for _, pr := range p.own.untold() {
		p.queue.push(task{kind: eventTask, problem: pr, own: true})
	}
	if !p.leading {
		return
	}
	for n, w := range p.services {
		t := task{kind: serviceTask, name: n}
		if p.done[t] != servicePrint(w) || w.Finalizer != lb.KeepFinalizer || !statusShows(w) {
			p.queue.push(t)
		}
	}
	for n, s := range p.ingresses {
		t := task{kind: ingressTask, name: n}
		if p.done[t] != ingressPrint(s) {
			p.queue.push(t)
		}
	}
	for _, pr := range p.cluster.untold() {
		p.queue.push(task{kind: eventTask, problem: pr})
	}
}

// statusShows tells whether the Service the decision was made on has these addresses.
func statusShows(w lb.Want) bool {
	have := make([]netip.Addr, 0, len(w.Service.Ingress))
	for _, in := range w.Service.Ingress {
		have = append(have, in.IP)
	}
	return w.ConditionsOnly || slices.Equal(have, w.Addrs)
}

func servicePrint(w lb.Want) string {
	return fmt.Sprint(w.Service.UID, w.Service.Type, w.Service.Deleting, w.Addrs, w.Conditions)
}

func ingressPrint(s IngressStatus) string { return fmt.Sprint(s.Ingress.UID, s.Addrs, s.Hostnames) }

// Run writes until ctx ends. Tasks are taken one by one, statuses before events.
func (p *Publisher) Run(ctx context.Context) {
	events := flowcontrol.NewTokenBucketRateLimiter(20, 100)
	pause := time.Duration(0)
	for {
		t, ok := p.queue.next(ctx, events)
		if !ok {
			return
		}
		err := p.do(ctx, t)
		switch {
		case err == nil:
			pause = 0
		case ctx.Err() != nil:
			return
		case apierrors.IsConflict(err):
			p.queue.push(t) // read anew, decided anew
		case unreachable(err):
			pause = min(max(2*pause, 250*time.Millisecond), 15*time.Second)
			p.log().Warn("publish: the API server does not take writes, trying again", "object", t.String(), "after", pause, "error", err)
			p.queue.push(t)
			sleep(ctx, pause)
		default:
			p.log().Warn("publish: refused by the API server", "object", t.String(), "error", err)
		}
	}
}

func (p *Publisher) do(ctx context.Context, t task) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p.mu.Lock()
	leading := p.leading
	w, isService := p.services[t.name]
	s, isIngress := p.ingresses[t.name]
	current := t.kind == eventTask && (t.own && p.own.current(t.problem) || p.cluster.current(t.problem))
	p.mu.Unlock()
	switch {
	case !leading && !t.own:
		return nil
	case t.kind == serviceTask && isService:
		written, err := p.writeService(ctx, w)
		return p.remember(t, servicePrint(w), written, err)
	case t.kind == ingressTask && isIngress:
		written, err := p.writeIngress(ctx, s)
		return p.remember(t, ingressPrint(s), written, err)
	case current:
		return p.writeEvent(ctx, t.problem)
	}
	return nil // overtaken by a later report
}

// remember notes what was written, so that the next report is not written again.
func (p *Publisher) remember(t task, print string, written bool, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && written {
		if p.done == nil {
			p.done = map[task]string{}
		}
		p.done[t] = print
	}
	return err
}

func (p *Publisher) log() *slog.Logger {
	if p.Log == nil {
		return slog.Default()
	}
	return p.Log
}

// logNews writes Problems that are new to the log too: there they are found when the
// API server is the problem.
func (p *Publisher) logNews() {
	for _, l := range []*ledger{&p.cluster, &p.own} {
		logChanges(p.log(), l)
	}
}
