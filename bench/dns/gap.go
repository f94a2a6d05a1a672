package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	wire "github.com/miekg/dns"
)

// gaps ends every server by a signal, starts it again at once, and tells the longest
// time a client that asks every millisecond went without an answer.
func gaps(ctx context.Context, st *stage, t *table) error {
	name := fmt.Sprintf("svc-%06d.bench.svc.cluster.local.", st.cluster.n/2)
	for _, s := range st.servers {
		for _, end := range []struct {
			name string
			by   syscall.Signal
		}{{"kill -9", syscall.SIGKILL}, {"restart", syscall.SIGTERM}} {
			w, err := watch(s, name)
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			_ = s.cmd.Process.Signal(end.by)
			<-s.exited
			if err := s.run(s.argv, s.log); err != nil {
				return err
			}
			if err := s.ready(ctx, name); err != nil {
				return err
			}
			time.Sleep(500 * time.Millisecond)
			t.add(result{server: s.name, load: end.name, gap: w.stop()})
		}
	}
	return nil
}

// watcher asks every millisecond without waiting for answers.
type watcher struct {
	conn    *net.UDPConn
	done    chan struct{}
	wg      sync.WaitGroup
	longest time.Duration
}

func watch(s *server, name string) (*watcher, error) {
	c, err := net.Dial("udp", net.JoinHostPort(s.addr, strconv.Itoa(s.port)))
	if err != nil {
		return nil, err
	}
	q := new(wire.Msg)
	q.SetQuestion(name, wire.TypeA)
	raw, err := q.Pack()
	if err != nil {
		return nil, err
	}
	w := &watcher{conn: c.(*net.UDPConn), done: make(chan struct{})}
	w.wg.Add(2)
	go w.ask(raw)
	go w.hear()
	return w, nil
}

func (w *watcher) ask(raw []byte) {
	defer w.wg.Done()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-tick.C:
			_, _ = w.conn.Write(raw) // refused while nobody listens
		}
	}
}

// hear takes answers with a record; SERVFAIL of a server that knows nothing yet is none.
func (w *watcher) hear() {
	defer w.wg.Done()
	buf, last := make([]byte, 1500), time.Now()
	for {
		select {
		case <-w.done:
			return
		default:
		}
		_ = w.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := w.conn.Read(buf)
		if err != nil || n < 12 || buf[7] == 0 {
			continue
		}
		w.longest = max(w.longest, time.Since(last))
		last = time.Now()
	}
}

func (w *watcher) stop() time.Duration {
	close(w.done)
	w.wg.Wait()
	w.conn.Close()
	return w.longest
}
