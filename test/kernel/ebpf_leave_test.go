package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestEBPFLeaves: a mode that is left lets an open connection end, and takes no new one
// meanwhile; it does not wait for ever, and not at all when there is none.
func TestEBPFLeaves(t *testing.T) {
	l := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/mixed.txtar")
	l.plan = planWith(l.story, "dns", []string{"10.244.1.5"})
	apply(t, l.backend, l.plan)
	l.CloseServers()
	l.in(t, "10.244.1.5", func() error { return echoOnce(t, "10.244.1.5:53") })
	left := make(chan error, 1)
	l.in(t, "203.0.113.2", func() error {
		c, err := net.DialTimeout("tcp", "10.96.0.10:53", 3*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		go func() { left <- l.backend.Cleanup(context.Background()) }()
		time.Sleep(300 * time.Millisecond)
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return fmt.Errorf("cut while the mode is left: %w", err)
		}
		other, err := net.DialTimeout("tcp", "10.96.0.10:53", 300*time.Millisecond)
		if err == nil {
			other.Close()
			return errors.New("a mode that is left takes a new connection")
		}
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("a mode that is left refuses a new connection: %w", err)
		}
		return nil
	})
	start := time.Now()
	if err := <-left; err != nil || time.Since(start) > 4*time.Second {
		t.Fatalf("left after %s: %v", time.Since(start), err)
	}
	apply(t, l.backend, l.plan)
	time.Sleep(3 * time.Second)
	start = time.Now()
	if err := l.backend.Cleanup(context.Background()); err != nil || time.Since(start) > 1500*time.Millisecond {
		t.Fatalf("with no connection, left after %s: %v", time.Since(start), err)
	}
}
