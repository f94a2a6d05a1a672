package lb_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func uid(n int) types.UID { return types.UID(strconv.Itoa(n)) }

// TestHeldIsKept makes random changes, loses and delays status writes, restarts the
// decider (which forgets promises once no write is under way) at random steps, and
// checks after each: an address in status is never another exclusive Service's and
// never changes while the Service does not ask for it.
func TestHeldIsKept(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		c := newCluster()
		c.pool([]string{"a", "10.0.0.1-10.0.0.4", "fd00::1-fd00::4"})
		c.pool([]string{"b", "10.0.1.250-10.0.2.2", "buggy", "ns=shop"})
		var flying []lb.Want
		for range 60 {
			c.randomChange(r)
			c.assign()
			c.promised = c.result.Promises()
			flying = latest(append(flying, lb.Diff(c.result)...))
			flying = c.land(t, r, flying)
			if r.IntN(8) == 0 && len(flying) == 0 {
				c.promised = nil
			}
			c.check(t)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// latest keeps the last wish per Service: the publisher never writes an older one.
func latest(in []lb.Want) []lb.Want {
	var out []lb.Want
	for i, w := range in {
		later := func(x lb.Want) bool { return x.Service.Name == w.Service.Name }
		if !slices.ContainsFunc(in[i+1:], later) {
			out = append(out, w)
		}
	}
	return out
}

func (c *cluster) randomChange(r *rand.Rand) {
	ns := []string{"default", "shop"}[r.IntN(2)]
	n := fmt.Sprintf("%s/s%d", ns, r.IntN(6))
	if r.IntN(4) == 0 {
		delete(c.services, name(n))
		return
	}
	if c.services[name(n)] != nil && r.IntN(3) > 0 {
		return // most Services stay as they are
	}
	f := []string{n, strconv.Itoa(80 + r.IntN(3))}
	for _, opt := range []string{"share=k", "local", "ip=10.0.0.3", "pool=a", "type=ClusterIP", "fam=46"} {
		if r.IntN(5) == 0 {
			f = append(f, opt)
		}
	}
	c.svc(f)
}

// land writes some of the wishes, in any order; the others stay under way. A wish for
// an object that changed since is refused, as the resource version would.
func (c *cluster) land(t *testing.T, r *rand.Rand, flying []lb.Want) []lb.Want {
	r.Shuffle(len(flying), func(i, j int) { flying[i], flying[j] = flying[j], flying[i] })
	var left []lb.Want
	for _, w := range flying {
		now := c.services[w.Service.Name]
		switch {
		case now == nil || string(now.UID) != w.Service.UID || c.result.Want(w.Service.Name) == nil:
		case r.IntN(2) == 0:
			left = append(left, w)
		default:
			c.keepsHeld(t, w)
			c.write(w)
		}
	}
	return left
}

// keepsHeld: a write may add addresses, but takes one away only for a reason the
// Service itself gives: a request, a family, a type, or an older one on its port.
func (c *cluster) keepsHeld(t *testing.T, w lb.Want) {
	s := w.Service
	if s.Type != model.LoadBalancer || s.Annotations["metallb.io/loadBalancerIPs"] != "" || s.Annotations["metallb.universe.tf/address-pool"] != "" {
		return
	}
	for _, in := range s.Ingress {
		dropped := !slices.Contains(w.Addrs, in.IP)
		if dropped && in.IP.Is4() && len(w.Addrs) > 0 && c.reasons(s.Name) != "AddressConflict" {
			t.Errorf("Service %s held %s and is given %v (%s)", s.Name, in.IP, w.Addrs, c.reasons(s.Name))
		}
	}
}

// check: no two Services show the same address and port.
func (c *cluster) check(t *testing.T) {
	type front struct {
		addr string
		port int32
	}
	seen := map[front]model.Name{}
	for n, s := range c.services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue // on its way out: nobody forwards for it
		}
		for _, in := range s.Status.LoadBalancer.Ingress {
			for _, p := range s.Spec.Ports {
				k := front{in.IP, p.Port}
				if other, dup := seen[k]; dup && c.settledWith(n, other) {
					t.Errorf("%v is %s's and %s's", k, n, other)
				}
				seen[k] = n
			}
		}
	}
}

// settledWith leaves out pairs whose ports were edited into a conflict by the user:
// those are resolved by the next write, and told.
func (c *cluster) settledWith(a, b model.Name) bool {
	c.assign()
	return c.reasons(a) == "" && c.reasons(b) == ""
}

// TestOrderDoesNotMatter: the map order of cluster.objects differs every time.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCluster()
		c.pool([]string{"a", "10.0.0.1-10.0.0.3", "fd00::1-fd00::4"})
		for range 20 {
			c.randomChange(r)
		}
		c.assign()
		want := lb.DiffText(c.result)
		for range 5 {
			c.assign()
			if got := lb.DiffText(c.result); got != want {
				t.Fatalf("seed %d:\n%s---\n%s", seed, got, want)
			}
		}
	}
}

func TestPromiseHoldsAgainstAnOlderService(t *testing.T) {
	c := newCluster()
	c.pool([]string{"a", "10.0.0.1-10.0.0.2"})
	c.svc([]string{"old", "80", "type=ClusterIP"})
	c.svc([]string{"young", "80"})
	c.assign()
	c.promised = c.result.Promises()
	c.svc([]string{"old", "80"}) // becomes a LoadBalancer while young's write is under way
	c.assign()
	if a := c.result.Want(name("young")).Addrs; joined(a) != "10.0.0.1" {
		t.Errorf("young was promised 10.0.0.1 and gets %v", a)
	}
	if a := c.result.Want(name("old")).Addrs; joined(a) != "10.0.0.2" {
		t.Errorf("old gets %v", a)
	}
}

func TestTenThousand(t *testing.T) {
	c := newCluster()
	c.pool([]string{"a", "10.0.0.0/16"})
	for i := range 10000 {
		c.svc([]string{fmt.Sprintf("s%d", i), "80"})
	}
	snap, _ := model.Build(nil, c.objects())
	start := time.Now()
	res, _ := lb.Assign(snap, lb.Config{})
	took := time.Since(start)
	seen := map[netip.Addr]bool{}
	for _, w := range res.Wants {
		if len(w.Addrs) != 1 || seen[w.Addrs[0]] {
			t.Fatalf("Service %s gets %v", w.Service.Name, w.Addrs)
		}
		seen[w.Addrs[0]] = true
	}
	t.Logf("10,000 Services assigned in %s", took)
	if took > 2*time.Second {
		t.Errorf("10,000 Services took %s, more than 2 s", took)
	}
}

func TestOwnerMovesOnlyItsOwn(t *testing.T) {
	nodes := []lb.Candidate{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}, {Node: "n4"}}
	count := map[string]int{}
	a := netip.MustParseAddr("10.0.0.0")
	for range 4000 {
		a = a.Next()
		owner, _ := lb.Owner(a, nodes)
		count[owner]++
		rest := slices.DeleteFunc(slices.Clone(nodes), func(c lb.Candidate) bool { return c.Node == "n2" })
		slices.Reverse(rest)
		if after, _ := lb.Owner(a, rest); owner != "n2" && after != owner {
			t.Fatalf("%s moved from %s to %s though only n2 left", a, owner, after)
		}
	}
	for n, c := range count {
		if c < 800 || c > 1200 {
			t.Errorf("node %s owns %d of 4000 addresses", n, c)
		}
	}
	if owner, whys := lb.Owner(a, []lb.Candidate{{Node: "n1", Blocked: "is not Ready"}}); owner != "" || whys[0].Reason != "is not Ready" {
		t.Errorf("all blocked: owner %q, %v", owner, whys)
	}
}
