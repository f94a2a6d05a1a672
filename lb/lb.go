// Package lb decides about addresses of Services of type LoadBalancer: a Snapshot and
// the addresses its Services already hold go in; out go the status every Service
// should have (Assign), the one node that answers for each address (Announce), and
// the Problems that name what stands in the way. It is a function of the set of
// objects, never of the order they came in. It never writes a status, never sends a
// frame and never changes or gives away an address that is held.
package lb

import (
	"net/netip"
	"slices"

	"fairway/model"
)

// Class is the spec.loadBalancerClass that always means this product.
const Class = "fairway.io/lb"

// CleanupFinalizer keeps a Service until its address is withdrawn (KEP-980).
const CleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// ConditionAddressAssigned is the type of the Service condition Assign fills.
const ConditionAddressAssigned = "fairway.io/AddressAssigned"

// Config says which Services are ours and what was decided but is not in status yet.
type Config struct {
	// Classes are loadBalancerClass values served besides Class.
	Classes []string
	// OnlyClass leaves Services without a loadBalancerClass to another provider.
	OnlyClass bool
	// Promised holds Result.Promises of the pass before: decisions whose status write
	// is still on its way. They rank behind addresses held in status and before
	// everything pending, so a slow write never lets two Services get one address.
	Promised map[model.Name]Promise
}

// Promise is an address decision for one Service, by UID so that a new Service of the
// same name does not inherit it.
type Promise struct {
	UID   string
	Addrs []netip.Addr
}

// Serves tells whether the Service is of type LoadBalancer and of a class of ours.
func (c Config) Serves(s *model.Service) bool {
	if s.Type != model.LoadBalancer {
		return false
	}
	if s.LBClass == "" {
		return !c.OnlyClass
	}
	return s.LBClass == Class || slices.Contains(c.Classes, s.LBClass)
}

// Finalizer is what to do with CleanupFinalizer. It is added before an address is
// written to status and removed after the address is gone from it.
type Finalizer string

// The three wishes.
const (
	KeepFinalizer   Finalizer = ""
	AddFinalizer    Finalizer = "add"
	RemoveFinalizer Finalizer = "remove"
)

// Condition is one element of a Service's status.conditions.
type Condition struct {
	Type    string
	Status  bool
	Reason  string
	Message string
}

// Want is the status one Service should have.
type Want struct {
	Service *model.Service
	// Addrs is status.loadBalancer.ingress in the order of the Service's families,
	// each with ipMode VIP; empty while pending and after release.
	Addrs []netip.Addr
	// Pool holds Addrs; zero when pending or when a held address is in no pool.
	Pool       model.Name
	Finalizer  Finalizer
	Conditions []Condition
	// ConditionsOnly leaves the rest of the status and the finalizer alone: the
	// Service's addresses are another's business, or it has none.
	ConditionsOnly bool
}

// Result is what Assign wants, sorted by Service name; it has an entry for every
// Service that is ours or still carries our finalizer, and for no other.
type Result struct {
	Wants []Want
}

// Want finds the entry of a Service, nil when it is none of ours.
func (r Result) Want(n model.Name) *Want {
	i, ok := slices.BinarySearchFunc(r.Wants, n, func(w Want, n model.Name) int { return w.Service.Name.Compare(n) })
	if !ok {
		return nil
	}
	return &r.Wants[i]
}

// Promises are the decisions status does not show yet: Config.Promised of the next pass.
func (r Result) Promises() map[model.Name]Promise {
	out := map[model.Name]Promise{}
	for _, w := range r.Wants {
		if len(w.Addrs) > 0 && !slices.Equal(w.Addrs, heldAddrs(w.Service)) {
			out[w.Service.Name] = Promise{UID: w.Service.UID, Addrs: w.Addrs}
		}
	}
	return out
}

// heldAddrs are the addresses in status, hostnames left out.
func heldAddrs(s *model.Service) []netip.Addr {
	var out []netip.Addr
	for _, in := range s.Ingress {
		if in.IP.IsValid() {
			out = append(out, in.IP)
		}
	}
	return out
}
