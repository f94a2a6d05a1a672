package lb_test

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairway/kube"
	"fairway/lb"
	"fairway/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cluster is the small world the table and property tests change step by step.
type cluster struct {
	pools    []*model.Pool
	services map[model.Name]*corev1.Service
	promised map[model.Name]lb.Promise
	born     int
	result   lb.Result
	problems []model.Problem
}

func newCluster() *cluster {
	return &cluster{services: map[model.Name]*corev1.Service{}}
}

func (c *cluster) objects() model.Objects {
	o := model.Objects{Pools: c.pools}
	for _, s := range c.services { // map order: another order every time
		o.Services = append(o.Services, s)
	}
	return o
}

func (c *cluster) assign() {
	snap, _ := model.Build(nil, c.objects())
	c.result, c.problems = lb.Assign(snap, lb.Config{Classes: []string{"example.com/ours"}, Promised: c.promised})
}

// write puts one Want into the object, as the publisher would.
func (c *cluster) write(w lb.Want) {
	old := c.services[w.Service.Name]
	if old == nil {
		return
	}
	s := old.DeepCopy()
	s.Status.LoadBalancer.Ingress = nil
	for _, a := range w.Addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	switch w.Finalizer {
	case lb.AddFinalizer:
		s.Finalizers = []string{lb.CleanupFinalizer}
	case lb.RemoveFinalizer:
		s.Finalizers = nil
	}
	c.services[w.Service.Name] = s
}

// settle runs until nothing is left to write.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	for range 5 {
		c.assign()
		diff := lb.Diff(c.result)
		if len(diff) == 0 {
			return
		}
		for _, w := range diff {
			c.write(w)
		}
	}
	t.Fatal("Assign does not come to rest")
}

func name(s string) model.Name {
	if ns, n, ok := strings.Cut(s, "/"); ok {
		return model.Name{Namespace: ns, Name: n}
	}
	return model.Name{Namespace: "default", Name: s}
}

func (c *cluster) pool(f []string) {
	p := &model.Pool{Name: model.Name{Name: f[0]}, AutoAssign: true}
	for _, w := range f[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "noauto":
			p.AutoAssign = false
		case "buggy":
			p.AvoidBuggyIPs = true
		case "prio":
			p.Priority, _ = strconv.Atoi(v)
		case "ns":
			p.Namespaces, p.Restricted = strings.Split(v, ","), true
		case "nssel":
			p.NamespaceSelectors, p.Restricted = []model.Selector{{MatchLabels: label(v)}}, true
		case "sel":
			p.ServiceSelectors, p.Restricted = []model.Selector{{MatchLabels: label(v)}}, true
		default:
			r, err := kube.ParseRange(w)
			if err != nil {
				panic(err)
			}
			p.Ranges = append(p.Ranges, r)
		}
	}
	c.nopool(f[0])
	c.pools = append(c.pools, p)
}

func (c *cluster) nopool(n string) {
	var out []*model.Pool
	for _, p := range c.pools {
		if p.Name.Name != n {
			out = append(out, p)
		}
	}
	c.pools = out
}

func label(v string) map[string]string {
	k, val, _ := strings.Cut(v, "=")
	return map[string]string{k: val}
}

func (c *cluster) svc(f []string) {
	n := name(f[0])
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: n.Namespace, Annotations: map[string]string{}}}
	s.Spec.Type, s.Spec.IPFamilies = corev1.ServiceTypeLoadBalancer, []corev1.IPFamily{corev1.IPv4Protocol}
	if old := c.services[n]; old != nil {
		s.Status, s.CreationTimestamp, s.Finalizers, s.UID = old.Status, old.CreationTimestamp, old.Finalizers, old.UID
	} else {
		c.born++
		s.CreationTimestamp, s.UID = metav1.NewTime(time.Unix(int64(c.born), 0)), uid(c.born)
	}
	for _, w := range f[1:] {
		setField(s, w)
	}
	c.services[n] = s
}

func setField(s *corev1.Service, w string) {
	k, v, _ := strings.Cut(w, "=")
	policy := func(p corev1.IPFamilyPolicy) { s.Spec.IPFamilyPolicy = &p }
	switch k {
	case "share":
		s.Annotations["metallb.io/allow-shared-ip"] = v
	case "local":
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	case "select":
		s.Spec.Selector = label(v)
	case "ip":
		s.Annotations["metallb.io/loadBalancerIPs"] = v
	case "lbip":
		s.Spec.LoadBalancerIP = v
	case "pool":
		s.Annotations["metallb.universe.tf/address-pool"] = v
	case "label":
		s.Labels = label(v)
	case "fam":
		s.Spec.IPFamilies = nil
		for _, d := range v {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily("IPv"+string(d)))
		}
	case "prefer":
		policy(corev1.IPFamilyPolicyPreferDualStack)
	case "require":
		policy(corev1.IPFamilyPolicyRequireDualStack)
	case "class":
		s.Spec.LoadBalancerClass = &v
	case "type":
		s.Spec.Type = corev1.ServiceType(v)
	default:
		proto, port, ok := strings.Cut(w, "/")
		if !ok {
			proto, port = "tcp", w
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			panic("unknown word " + w)
		}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.Protocol(strings.ToUpper(proto)), Port: int32(n)})
	}
}

func (c *cluster) reasons(n model.Name) string {
	var out []string
	for _, p := range c.problems {
		if p.Object.Name == n {
			out = append(out, p.Reason)
		}
	}
	return strings.Join(out, " ")
}

func TestAllocator(t *testing.T) {
	data, err := os.ReadFile("testdata/allocator.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split("\n"+string(data), "\ncase ")[1:]
	if len(cases) < 25 {
		t.Fatalf("only %d cases read", len(cases))
	}
	for _, text := range cases {
		title, body, _ := strings.Cut(text, "\n")
		t.Run(title, func(t *testing.T) {
			c := newCluster()
			for _, line := range strings.Split(body, "\n") {
				if f := strings.Fields(line); len(f) > 0 {
					c.step(t, f)
				}
			}
		})
	}
}

func (c *cluster) step(t *testing.T, f []string) {
	switch f[0] {
	case "pool":
		c.pool(f[1:])
	case "nopool":
		c.nopool(f[1])
	case "svc":
		c.svc(f[1:])
	case "del":
		delete(c.services, name(f[1]))
	case "status":
		s := c.services[name(f[1])].DeepCopy()
		for _, a := range f[2:] {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		c.services[name(f[1])] = s
	case "want":
		c.want(t, name(f[1]), f[2], strings.Join(f[3:], " "))
	default:
		t.Fatalf("unknown line %v", f)
	}
}

// want runs one pass: the Problem of a change shows in the pass that makes it. The
// decision must be kept by the passes after it.
func (c *cluster) want(t *testing.T, n model.Name, addr, reason string) {
	t.Helper()
	c.assign()
	got, why := "none", c.reasons(n)
	if w := c.result.Want(n); w != nil {
		if got = joined(w.Addrs); got == "" {
			got = "-"
		}
	}
	if got != addr || why != reason {
		t.Errorf("%s: got %s %q, want %s %q; problems %v", n, got, why, addr, reason, c.problems)
	}
	c.settle(t)
	if w := c.result.Want(n); w != nil && joined(w.Addrs) != strings.Trim(addr, "-") {
		t.Errorf("%s: settled on %v, first decided %s", n, w.Addrs, addr)
	}
}

func joined(ips []netip.Addr) string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return strings.Join(out, ",")
}
