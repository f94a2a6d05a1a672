package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestLiveness walks one node's knowledge through time, in milliseconds.
func TestLiveness(t *testing.T) {
	const ms = time.Millisecond
	l := &liveness{self: "me", times: DefaultLeaseTimes(), frozen: true}
	expect := func(at int, want string) {
		t.Helper()
		l.judge(time.Duration(at) * ms)
		got := ""
		for _, n := range []string{"me", "a", "b"} {
			if l.live[n] {
				got += n
			}
		}
		if got != want {
			t.Errorf("at %d live are %q, want %q", at, got, want)
		}
	}
	see := func(at int, node, stamp string) { l.see(node, stamp, 3000*ms, time.Duration(at)*ms) }
	renew := func(at int) bool {
		_, ok := l.renewed(time.Duration(at)*ms, time.Duration(at)*ms)
		return ok
	}
	if renew(1000) {
		t.Error("may act before having seen the own Lease")
	}
	expect(1000, "")
	see(1010, "me", "1")
	see(1010, "a", "1")
	see(1010, "b", "dead since long") // its first sight counts as life, for once
	expect(1020, "ab")
	if !renew(2000) {
		t.Error("may not act though all is well")
	}
	see(2010, "me", "2")
	see(2010, "a", "2")
	expect(2020, "meab")
	renew(3000)
	see(3010, "me", "3")
	renew(4000)
	see(4010, "me", "4")
	expect(4019, "meab")
	expect(4020, "mea") // b was last seen at 1020, when judging began
	see(4500, "b", "dead since long")
	expect(4510, "mea") // a relist shows the same stamp: no life
	renew(5000)
	see(5010, "me", "5")
	expect(5011, "me") // a was last renewed at 2010

	// An outage for everybody: own Lease lapses, nothing more is judged.
	see(5100, "a", "3")
	expect(5200, "mea")
	expect(20000, "mea")
	if ok := renew(20100); ok {
		t.Error("may act again before seeing anything")
	}
	expect(20150, "mea")
	see(20200, "me", "6")
	expect(20210, "ab") // all get their time, itself joins last
	if !renew(20300) {
		t.Error("may not act though back")
	}
	expect(20710, "meab")
	see(21000, "a", "4")
	see(21000, "me", "7")
	renew(22000)
	see(22010, "me", "8")
	expect(23220, "mea")

	// Blind: renewals are accepted, but the watch is silent.
	renew(24000)
	renew(25000)
	if renew(25500) {
		t.Error("may act though it hears nothing since 22010")
	}
	expect(25500, "mea")
}

// clock is real time that a test can stop for one node, as SIGSTOP would.
func bootTime() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Hour + time.Since(start) }
}

type nodeRun struct {
	*NodeLeases
	until  atomic.Int64
	cancel context.CancelFunc
	done   chan struct{}
}

func startNode(t *testing.T, client *fake.Clientset, node string) *nodeRun {
	n := &nodeRun{done: make(chan struct{})}
	n.NodeLeases = &NodeLeases{
		Client: client.CoordinationV1(), Namespace: "fairway-system", Node: node, Now: bootTime(),
		Times:    LeaseTimes{Duration: time.Second, Renew: 200 * time.Millisecond, Margin: 200 * time.Millisecond, Join: 100 * time.Millisecond},
		Extended: func(u time.Duration) { n.until.Store(int64(u)) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.Run(ctx); close(n.done) }()
	t.Cleanup(func() { cancel(); <-n.done })
	return n
}

func (n *nodeRun) waitLive(t *testing.T, within time.Duration, want ...string) {
	t.Helper()
	start := time.Now()
	for time.Since(start) < within {
		live, _ := n.Live()
		ok := len(live) == len(want)
		for _, w := range want {
			ok = ok && live[w]
		}
		if ok {
			t.Logf("%s sees %v after %s", n.Node, want, time.Since(start).Round(10*time.Millisecond))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	live, known := n.Live()
	t.Fatalf("%s sees %v (%v), want %v", n.Node, live, known, want)
}

func TestNodeLeases(t *testing.T) {
	client := fake.NewClientset()
	var down atomic.Bool
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if down.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	a, b := startNode(t, client, "a"), startNode(t, client, "b")
	a.waitLive(t, 3*time.Second, "a", "b")
	b.waitLive(t, 3*time.Second, "a", "b")

	down.Store(true) // for everybody: nobody is declared dead, everybody's fence shuts
	time.Sleep(1500 * time.Millisecond)
	if now := a.Now(); int64(now) < a.until.Load() {
		t.Error("a's fence is open after 1.5 s without the API server")
	}
	a.waitLive(t, time.Second, "a", "b")
	down.Store(false)
	time.Sleep(500 * time.Millisecond)
	a.waitLive(t, time.Second, "a", "b")

	stopped := time.Now()
	b.cancel()
	<-b.done
	a.waitLive(t, 3*time.Second, "a")
	if took := time.Since(stopped); took < 700*time.Millisecond {
		t.Errorf("b counted as dead after %s, its fence may still be open", took)
	}
	b2 := startNode(t, client, "b")
	b2.waitLive(t, 3*time.Second, "a", "b")
	a.waitLive(t, 3*time.Second, "a", "b")
	b2.cancel()
	<-b2.done
	if err := b2.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.waitLive(t, 300*time.Millisecond, "a")
}

func TestLeader(t *testing.T) {
	client := fake.NewClientset()
	var mu sync.Mutex
	leading := map[string]bool{}
	stops := map[string]context.CancelFunc{}
	var wg sync.WaitGroup
	for i := range 3 {
		id := fmt.Sprint("n", i)
		ctx, cancel := context.WithCancel(context.Background())
		stops[id] = cancel
		l := &Leader{Client: client.CoordinationV1(), Namespace: "fairway-system", ID: id, Changed: func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			leading[id] = on
			n := 0
			for _, on := range leading {
				if on {
					n++
				}
			}
			if n > 1 {
				t.Errorf("two leaders: %v", leading)
			}
		}}
		wg.Go(func() { l.Run(ctx) })
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
		wg.Wait()
	}()
	who := func() string {
		mu.Lock()
		defer mu.Unlock()
		for id, on := range leading {
			if on {
				return id
			}
		}
		return ""
	}
	first := waitFor(t, 3*time.Second, who)
	stops[first]()
	second := waitFor(t, 4*time.Second, func() string {
		if w := who(); w != first {
			return w
		}
		return ""
	})
	t.Logf("%s, then %s", first, second)
}

func waitFor(t *testing.T, within time.Duration, f func() string) string {
	t.Helper()
	for start := time.Now(); time.Since(start) < within; time.Sleep(5 * time.Millisecond) {
		if s := f(); s != "" {
			return s
		}
	}
	t.Fatal("nothing happened")
	return ""
}
