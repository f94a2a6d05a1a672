package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairway/model"
	"fairway/proxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notes is an Observer that writes down what it is told.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) Queued() {}
func (n *notes) Changed(services, slices, newServices, newSlices int) {
	n.note("changed %d %d new %d %d", services, slices, newServices, newSlices)
}
func (n *notes) Applied(_ time.Duration, _ *proxy.Plan, full bool) { n.note("applied full %v", full) }
func (n *notes) Programmed(v6 bool, took time.Duration) {
	n.note("programmed v6 %v in %s", v6, took.Round(time.Second))
}
func (n *notes) Failed(_ error, full bool) { n.note("failed full %v", full) }
func (n *notes) Drift([]string)            {}

func slice(name string, family discoveryv1.AddressType, changed time.Time) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: changed.Format(time.RFC3339Nano)}}}
}

// TestChanges: only what changed since the rules in force counts, and pends while they are
// refused; programming times are those of changed slices, and of changes this process saw.
func TestChanges(t *testing.T) {
	now := time.Now()
	past, later := now.Add(-time.Hour), now.Add(time.Minute)
	a, b := slice("a", discoveryv1.AddressTypeIPv4, past), slice("b", discoveryv1.AddressTypeIPv6, past)
	one := services("x", "y")
	one.EndpointSlices = []*discoveryv1.EndpointSlice{a, b}
	two := one
	two.EndpointSlices = []*discoveryv1.EndpointSlice{a, slice("b", discoveryv1.AddressTypeIPv6, later)}
	three := two
	three.Services = one.Services[1:]
	n := &notes{}
	var c changes
	c.see(one, n)
	c.applied(later, n)
	c.see(two, n)
	c.see(three, n) // the pass of two was refused
	c.applied(later.Add(3*time.Second), n)
	c.see(three, n)
	want := []string{"changed 2 2 new 2 2", "changed 0 1 new 0 1", "changed 1 1 new 1 0", "programmed v6 true in 3s", "changed 0 0 new 0 0"}
	if !slices.Equal(n.lines, want) {
		t.Errorf("got  %q\nwant %q", n.lines, want)
	}
}

func TestDiffer(t *testing.T) {
	list := func(names ...string) []*corev1.Service { return services(names...).Services }
	base := list("a", "b", "c", "d")
	for _, c := range []struct {
		name string
		new  []*corev1.Service
		want int
	}{
		{"the same", base, 0},
		{"one gone", []*corev1.Service{base[0], base[2], base[3]}, 1},
		{"one changed", []*corev1.Service{base[0], list("b")[0], base[2], base[3]}, 1},
		{"one more in front", append(list("0"), base...), 1},
		{"another order", []*corev1.Service{base[3], base[1], base[2], base[0]}, 0},
		{"all gone", nil, 4},
	} {
		out := map[objectKey]*corev1.Service{}
		if got := differ(base, c.new, out); got != c.want || len(out) != c.want {
			t.Errorf("%s: %d changes, %v, want %d", c.name, got, out, c.want)
		}
	}
}

// failing is a journal that fails once at will.
type failing struct {
	journal
	err error
}

func (f *failing) Apply(ctx context.Context, p *proxy.Plan) ([]model.Problem, error) {
	if err := f.err; err != nil {
		f.err = nil
		return nil, err
	}
	return f.journal.Apply(ctx, p)
}

// TestFullPasses: the first pass is full, and the one after a failure.
func TestFullPasses(t *testing.T) {
	n, b := &notes{}, &failing{}
	var reported []model.Problem
	l := &Loop{Backend: b, Observe: n, Report: func(_, node []model.Problem) { reported = node },
		Standing: func() []model.Problem { return []model.Problem{{Reason: "Standing"}} }}
	pass := func(o model.Objects) {
		l.Deliver(o, nil)
		l.pass(context.Background())
	}
	pass(services("a"))
	pass(services("a", "b"))
	b.err = errors.New("no")
	pass(services("a", "b", "c"))
	pass(services("a", "b", "c"))
	pass(services("a", "b"))
	var got []string
	for _, line := range n.lines {
		if line[0] != 'c' {
			got = append(got, line)
		}
	}
	want := []string{"applied full true", "applied full false", "failed full false", "applied full true", "applied full false"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(reported) != 1 || reported[0].Reason != "Standing" {
		t.Errorf("the node's standing Problems are not told: %v", reported)
	}
}

// TestMinSync: between two passes the least time goes by, and no change is lost in it.
func TestMinSync(t *testing.T) {
	n, j := &notes{}, &journal{}
	l := &Loop{Backend: j, Stages: []Stage{j}, Observe: n, MinSync: 300 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go l.Run(ctx)
	start := time.Now()
	l.Deliver(services("a"), nil)
	j.wait(t, []string{"apply 1", "publish 1"})
	for i := range 5 {
		l.Deliver(services([]string{"a", "b", "c", "d", "e", "f"}[:i+2]...), nil)
	}
	j.wait(t, []string{"apply 1", "publish 1", "apply 6", "publish 6"})
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("the second pass came after %s", took)
	}
}

func TestPrimaryBesideCIDRs(t *testing.T) {
	p := netip.MustParsePrefix
	ips := []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00::b"), netip.MustParseAddr("192.0.2.1")}
	got := withPrimary(proxy.NodePortAddresses{Primary: true, CIDRs: []netip.Prefix{p("127.0.0.0/8")}}, ips)
	if want := []netip.Prefix{p("127.0.0.0/8"), p("172.30.0.11/32"), p("fd00::b/128")}; got.Primary || !slices.Equal(got.CIDRs, want) {
		t.Errorf("got %+v, want %v", got, want)
	}
	if got := withPrimary(proxy.NodePortAddresses{Primary: true}, ips); !got.Primary || got.CIDRs != nil {
		t.Errorf("primary alone became %+v", got)
	}
}
