package kube

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
)

// Local takes reports where there is no API server: Problems go to the log, and the
// addresses of Services into copies of the objects read from files (Overlay), where
// the next pass finds them as it would find a status.
type Local struct {
	Log *slog.Logger // nil is slog.Default()
	// Changed is called after a report that changes what Overlay returns.
	Changed func()
	// State is a file that keeps the addresses over a restart; empty keeps none.
	State string

	mu     sync.Mutex
	ledger ledger
	addrs  map[model.Name][]netip.Addr
	made   map[model.Name]overlaid
}

type overlaid struct {
	from, to *corev1.Service
	addrs    []netip.Addr
}

// Publish takes over a report; there is always exactly one leader here.
func (l *Local) Publish(r Report) {
	log := l.Log
	if log == nil {
		log = slog.Default()
	}
	l.mu.Lock()
	l.ledger.set(append(slices.Clone(r.Problems), r.Node...))
	logChanges(log, &l.ledger)
	addrs := map[model.Name][]netip.Addr{}
	changed := false
	for _, w := range r.Services {
		if len(w.Addrs) > 0 {
			addrs[w.Service.Name] = w.Addrs
		}
		changed = changed || !slices.Equal(l.addrs[w.Service.Name], w.Addrs)
	}
	l.addrs = addrs
	l.mu.Unlock()
	if !changed {
		return
	}
	if err := l.save(addrs); err != nil {
		log.Warn("a restart may give other addresses", "err", err)
	}
	if l.Changed != nil {
		l.Changed()
	}
}

// Logged says that Problems have their line in the log already.
func (l *Local) Logged(problems []model.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.wasLogged(problems)
}

// Overlay returns the Services with the addresses given to them in status. Copies are
// the same pointers as long as object and addresses are the same. A status written in
// the file itself stays when nothing was given.
func (l *Local) Overlay(in []*corev1.Service) []*corev1.Service {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*corev1.Service, len(in))
	made := map[model.Name]overlaid{}
	for i, s := range in {
		n := model.Name{Namespace: s.Namespace, Name: s.Name}
		addrs := l.addrs[n]
		if out[i] = s; len(addrs) == 0 {
			continue
		}
		o := l.made[n]
		if o.from != s || !slices.Equal(o.addrs, addrs) {
			o = overlaid{from: s, to: withAddrs(s, addrs), addrs: addrs}
		}
		made[n], out[i] = o, o.to
	}
	l.made = made
	return out
}

func withAddrs(s *corev1.Service, addrs []netip.Addr) *corev1.Service {
	c := s.DeepCopy()
	mode := corev1.LoadBalancerIPModeVIP
	c.Status.LoadBalancer.Ingress = nil
	for _, a := range addrs {
		c.Status.LoadBalancer.Ingress = append(c.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	if !slices.Contains(c.Finalizers, lb.CleanupFinalizer) {
		c.Finalizers = append(c.Finalizers, lb.CleanupFinalizer)
	}
	return c
}
