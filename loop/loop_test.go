package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"fairway/model"
	"fairway/proxy"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// journal records what the loop does, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
	fail  int // how many Apply calls to refuse
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) Mode() string { return "journal" }

func (j *journal) Apply(_ context.Context, p *proxy.Plan) ([]model.Problem, error) {
	j.mu.Lock()
	failing := j.fail > 0
	j.fail--
	j.mu.Unlock()
	if failing {
		j.note("apply refused")
		return nil, errors.New("refused")
	}
	j.note("apply %d", len(p.Ports))
	return nil, nil
}

func (j *journal) Audit(context.Context) ([]string, error) { return nil, nil }
func (j *journal) Cleanup(context.Context) error           { return nil }
func (j *journal) Withdraw(s *model.Snapshot)              { j.note("withdraw to %d", len(s.Services)) }

func (j *journal) Publish(_ context.Context, s *model.Snapshot, _ *proxy.Plan) []model.Problem {
	j.note("publish %d", len(s.Services))
	return nil
}

func (j *journal) wait(t *testing.T, want []string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		j.mu.Lock()
		got := slices.Clone(j.lines)
		j.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want %q", got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func services(names ...string) model.Objects {
	var o model.Objects
	for i, n := range names {
		o.Services = append(o.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: n},
			Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.0.%d", i+1), Ports: []corev1.ServicePort{{Port: 80}}},
		})
	}
	return o
}

func start(t *testing.T, j *journal) *Loop {
	l := &Loop{Backend: j, Stages: []Stage{j}}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go l.Run(ctx)
	return l
}

func TestOrder(t *testing.T) {
	j := &journal{}
	l := start(t, j)
	time.Sleep(20 * time.Millisecond) // nothing delivered: nothing may be written
	l.Deliver(services("a", "b"), nil)
	want := []string{"apply 2", "publish 2"}
	j.wait(t, want)
	l.Deliver(services("a"), nil) // names and announcements go first, then rules
	want = append(want, "withdraw to 1", "apply 1", "publish 1")
	j.wait(t, want)
	l.Deliver(services("a", "c"), nil) // nothing is published before it works
	want = append(want, "apply 2", "publish 2")
	j.wait(t, want)
}

// TestNoProxy: where somebody else proxies nothing is planned, and all is published.
func TestNoProxy(t *testing.T) {
	j := &journal{}
	l := &Loop{Stages: []Stage{j}}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go l.Run(ctx)
	l.Deliver(services("a", "b"), nil)
	j.wait(t, []string{"publish 2"})
	l.Deliver(services("a"), nil)
	j.wait(t, []string{"publish 2", "publish 1"})
	if p := l.Plan(); p == nil || len(p.Ports) > 0 {
		t.Errorf("planned %v", p)
	}
}

func TestRefused(t *testing.T) {
	j := &journal{fail: 2}
	l := start(t, j)
	l.Deliver(services("a"), nil)
	j.wait(t, []string{"apply refused", "apply refused", "apply 1", "publish 1"})
}
