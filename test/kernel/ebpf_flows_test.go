package kernel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairway/loop"
	"fairway/packet"
	"fairway/proxy"
	"fairway/test/netlab"
	"fairway/test/story"

	"golang.org/x/sys/unix"
)

// ebpfLab is a node with the mode in force.
type ebpfLab struct {
	*netlab.Lab
	story   *story.Story
	plan    *proxy.Plan
	backend loop.Backend
}

func newEBPFLab(t *testing.T, m mode, path string) *ebpfLab {
	t.Helper()
	requireKernel(t)
	s := story.Load(t, path)
	m.settings(&s.Config)
	plan, _ := s.Plan()
	l := &ebpfLab{Lab: newLab(t, plan, s.Packets), story: s, plan: plan}
	if m.prepare != nil {
		m.prepare(t, l.Lab, s.Packets)
	}
	l.backend = m.open(t, l.Node)
	apply(t, l.backend, plan)
	return l
}

// in runs f in the host that has the address.
func (l *ebpfLab) in(t *testing.T, addr string, f func() error) {
	t.Helper()
	if err := l.Host(netip.MustParseAddr(addr)).Do(f); err != nil {
		t.Fatal(err)
	}
}

// TestEBPFSocketNames: a program sees the address it asked for, by every call that tells
// one, and datagrams seem to come from it.
func TestEBPFSocketNames(t *testing.T) {
	l := newEBPFLab(t, ebpfSocketMode(), "testdata/mixed.txtar")
	for _, host := range []string{"10.244.1.5", "172.30.0.11"} {
		l.in(t, host, func() error { return peerIs("tcp", "10.96.0.10:53") })
	}
	l.in(t, "172.30.0.11", func() error { return peerIs("udp", "10.96.0.10:53") })
	for _, host := range []string{"10.244.1.5", "172.30.0.11"} {
		l.in(t, host, func() error { return answersFrom("10.96.0.10:53") })
	}
}

func peerIs(network, addr string) error {
	c, err := net.DialTimeout(network, addr, 3*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var peer string
	err = raw.Control(func(fd uintptr) {
		sa, err := unix.Getpeername(int(fd))
		if v4, ok := sa.(*unix.SockaddrInet4); ok && err == nil {
			peer = netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), uint16(v4.Port)).String()
		}
	})
	if err == nil && peer != addr {
		err = fmt.Errorf("%s: getpeername tells %s", addr, peer)
	}
	if err != nil || network == "tcp" {
		return err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	_, err = c.Read(make([]byte, 100))
	return err
}

// answersFrom sends from a socket that is connected to nobody: all its datagrams must go
// to one endpoint, and answers come from the address asked.
func answersFrom(addr string) error {
	pc, err := net.ListenPacket("udp4", ":0")
	if err != nil {
		return err
	}
	defer pc.Close()
	seen := map[string]bool{}
	for range 10 {
		if _, err := pc.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))); err != nil {
			return err
		}
		_ = pc.SetReadDeadline(time.Now().Add(3 * time.Second))
		buf := make([]byte, 100)
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return err
		}
		if from.String() != addr {
			return fmt.Errorf("%s: the answer comes from %s", addr, from)
		}
		endpoint, _, _ := strings.Cut(string(buf[:n]), " ")
		seen[endpoint] = true
	}
	if len(seen) != 1 {
		return fmt.Errorf("%s: one socket's datagrams went to %d endpoints", addr, len(seen))
	}
	return nil
}

// TestEBPFRefusedAtOnce: what nobody serves is told at connect, without a packet.
func TestEBPFRefusedAtOnce(t *testing.T) {
	l := newEBPFLab(t, ebpfSocketMode(), "testdata/hairpin.txtar")
	for addr, want := range map[string]error{"10.96.0.50:81": unix.ECONNREFUSED, "10.96.7.7:80": unix.EPERM,
		"[fd00:96::50]:81": unix.ECONNREFUSED, "[fd00:96::77]:80": unix.EPERM} {
		l.in(t, "10.244.1.5", func() error {
			start := time.Now()
			_, err := net.Dial("tcp", addr)
			if !errors.Is(err, want) || time.Since(start) > time.Second {
				return fmt.Errorf("%s: %w after %s, want %w", addr, err, time.Since(start), want)
			}
			return nil
		})
	}
}

// TestEBPFUDPFollows: a connected UDP socket of a pod, and an unconnected one of the node,
// reach the endpoint that is left when theirs goes.
func TestEBPFUDPFollows(t *testing.T) {
	l := newEBPFLab(t, ebpfSocketMode(), "testdata/mixed.txtar")
	dst := netip.MustParseAddrPort("10.96.0.10:53")
	ask := func(c net.Conn) (string, error) {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write([]byte("?")); err != nil {
			return "", err
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		endpoint, _, _ := strings.Cut(string(buf[:n]), " ")
		return endpoint, err
	}
	l.in(t, "10.244.1.8", func() error {
		c, err := net.Dial("udp", dst.String())
		if err != nil {
			return err
		}
		defer c.Close()
		first, err := ask(c)
		if err != nil {
			return err
		}
		left := "10.244.1.5"
		if strings.HasPrefix(first, left) {
			left = "10.244.1.6"
		}
		l.plan = planWith(l.story, "dns", []string{left})
		apply(t, l.backend, l.plan)
		for deadline := time.Now().Add(3 * time.Second); ; {
			now, err := ask(c)
			if strings.HasPrefix(now, left) {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("still %q %v, want %s", now, err, left)
			}
		}
	})
}

// TestEBPFICMP: a client is told that nobody listens at its endpoint, in its own words.
func TestEBPFICMP(t *testing.T) {
	for _, host := range []string{"10.244.1.8", "203.0.113.2"} { // one is masqueraded
		l := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/mixed.txtar")
		l.plan = planWith(l.story, "dns", []string{"10.244.1.5"})
		apply(t, l.backend, l.plan)
		l.CloseServers()
		l.in(t, host, func() error {
			c, err := net.Dial("udp", "10.96.0.10:53")
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(3 * time.Second))
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("%s is told %w", host, err)
			}
			return nil
		})
	}
}

// TestEBPFBulk: many megabytes in both directions, masqueraded and not, in segments
// larger than any packet: sums are right and nothing is lost. They are counted.
func TestEBPFBulk(t *testing.T) {
	for _, c := range []struct{ client, dst, endpoint string }{
		{"10.244.1.8", "10.96.0.10:53", "10.244.1.5:53"},
		{"203.0.113.2", "10.96.0.10:53", "10.244.1.5:53"},
	} {
		l := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/mixed.txtar")
		l.plan = planWith(l.story, "dns", []string{"10.244.1.5"})
		apply(t, l.backend, l.plan)
		l.CloseServers()
		l.in(t, "10.244.1.5", func() error {
			lc := net.ListenConfig{}
			lc.SetMultipathTCP(false)
			ln, err := lc.Listen(context.Background(), "tcp", c.endpoint)
			if err != nil {
				return err
			}
			t.Cleanup(func() { ln.Close() })
			go func() {
				if conn, err := ln.Accept(); err == nil {
					_, _ = io.Copy(conn, conn)
					conn.Close()
				}
			}()
			return nil
		})
		const size = 8 << 20
		l.in(t, c.client, func() error { return echoes(c.dst, size) })
		counts, err := l.backend.(loop.Counter).Counters(context.Background())
		if err != nil || len(counts) != 1 {
			t.Fatalf("counts: %v %v", counts, err)
		}
		if n := counts[0]; n.Key.Service.Name != "dns" || n.Connections != 1 || n.BytesIn < size || n.BytesOut < size {
			t.Errorf("counted %+v", n)
		}
	}
}

func echoes(dst string, size int) error {
	conn, err := net.DialTimeout("tcp", dst, 3*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), size)
	}
	return nil
}

// TestEBPFNodesAgree: two nodes choose the same endpoint for the same flow from outside,
// so that a flow may arrive at another one halfway.
func TestEBPFNodesAgree(t *testing.T) {
	one := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/hairpin.txtar")
	two := newEBPFLab(t, ebpfMode(&ebpfNodes{}), "testdata/hairpin.txtar")
	dst := netip.MustParseAddrPort("172.30.0.11:30050")
	seen := map[string]bool{}
	for port := 20000; port < 20030; port++ {
		var got []string
		for _, l := range []*ebpfLab{one, two} {
			l.in(t, "203.0.113.2", func() error {
				d := net.Dialer{Timeout: 3 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 2), Port: port}}
				d.SetMultipathTCP(false)
				c, err := d.Dial("tcp", dst.String())
				if err != nil {
					return err
				}
				defer c.Close()
				b, err := io.ReadAll(c)
				endpoint, _, _ := strings.Cut(string(b), " ")
				got = append(got, endpoint)
				return err
			})
		}
		if got[0] != got[1] {
			t.Fatalf("port %d: %v", port, got)
		}
		seen[got[0]] = true
	}
	if want := len(one.plan.Answer(packet.Packet{Src: netip.MustParseAddr("203.0.113.2"), Dst: dst, Proto: packet.TCP}).Choices); len(seen) != want {
		t.Errorf("30 flows reached %d endpoints of %d", len(seen), want)
	}
}
