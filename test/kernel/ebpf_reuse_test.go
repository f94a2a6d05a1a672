package kernel_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairway/model"
	"fairway/proxy"
	"fairway/test/story"

	v1 "k8s.io/api/core/v1"
)

// TestEBPFStrangers: connections of two clients that leave as the same address do not meet
// each other's at an endpoint that closed them and is in TIME_WAIT: it would answer the
// stranger's SYN as its peer's, and the client would have to begin again a second later.
func TestEBPFStrangers(t *testing.T) {
	l := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/mixed.txtar")
	l.plan = planWith(l.story, "dns", []string{"10.244.1.5"})
	apply(t, l.backend, l.plan)
	slow, dials := 0, 0
	for range 5 {
		for _, client := range []string{"203.0.113.2", "10.244.1.5"} { // the second hairpins
			l.in(t, client, func() error {
				for range 200 {
					dials++
					took, err := timeDial(client)
					if err != nil {
						return fmt.Errorf("dial %d from %s: %w", dials, client, err)
					}
					if took > 900*time.Millisecond {
						slow++
					}
				}
				return nil
			})
		}
	}
	if slow > 2 { // a loaded machine may stall
		t.Errorf("%d of %d connections had to begin again", slow, dials)
	}
}

func timeDial(client string) (time.Duration, error) {
	start := time.Now()
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: netip.MustParseAddr(client).AsSlice()}}
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp", "10.96.0.10:53")
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	_, err = c.Read(make([]byte, 100))
	return time.Since(start), err
}

// TestEBPFOutlivesService: an open TCP connection goes on when its Service ends, and a new
// one to the address is nobody's; both masqueraded and not.
func TestEBPFOutlivesService(t *testing.T) {
	for _, client := range []string{"203.0.113.2", "10.244.1.8"} {
		l := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/mixed.txtar")
		l.plan = planWith(l.story, "dns", []string{"10.244.1.5"})
		apply(t, l.backend, l.plan)
		l.CloseServers()
		l.in(t, "10.244.1.5", func() error { return echoOnce(t, "10.244.1.5:53") })
		l.in(t, client, func() error {
			c, err := net.DialTimeout("tcp", "10.96.0.10:53", 3*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			apply(t, l.backend, planWithout(l.story, "dns"))
			_ = c.SetDeadline(time.Now().Add(3 * time.Second))
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return fmt.Errorf("%s: the connection ended with its Service: %w", client, err)
			}
			if other, err := net.DialTimeout("tcp", "10.96.0.10:53", 300*time.Millisecond); err == nil {
				other.Close()
				return fmt.Errorf("%s: connects to a Service that is gone", client)
			}
			return nil
		})
	}
}

// planWithout is the story's plan less a Service.
func planWithout(s *story.Story, service string) *proxy.Plan {
	objects := s.Objects
	objects.Services = slices.DeleteFunc(slices.Clone(objects.Services), func(svc *v1.Service) bool { return svc.Name == service })
	snap, _ := model.Build(nil, objects)
	plan, _ := proxy.New(nil, snap, s.Config)
	return plan
}

// echoOnce serves one connection, and sends back what comes.
func echoOnce(t *testing.T, at string) error {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	return nil
}
