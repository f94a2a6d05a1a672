package stream

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairway/packet"
)

// udpNamed answers each datagram with its name and whom it saw.
func udpNamed(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo([]byte(name+" "+from.String()), from)
		}
	}()
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

func udpTo(at string, targets ...netip.AddrPort) *Listener {
	return &Listener{Name: "u", Proto: packet.UDP, Addr: netip.MustParseAddrPort(at), Routes: []*Route{{Name: "u", Targets: targets}}}
}

func udpClient(t *testing.T, from string, to netip.AddrPort) func() (name, seen string) {
	t.Helper()
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))}
	c, err := d.Dial("udp", to.String()) // connected: a reply from elsewhere is not seen
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func() (name, seen string) {
		t.Helper()
		buf := make([]byte, 100)
		for range 10 { // one may be lost on the way to a target that is not there
			c.Write([]byte("?"))
			c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if n, err := c.Read(buf); err == nil {
				fmt.Sscan(string(buf[:n]), &name, &seen)
				return name, seen
			}
		}
		return "silence", ""
	}
}

func TestUDPSessions(t *testing.T) {
	s := serverFor(t, Settings{UDPIdle: 150 * time.Millisecond})
	a, b := udpNamed(t, "a"), udpNamed(t, "b")
	to := listen(t, s, udpTo("127.0.0.1:0", a, b))
	one, two := udpClient(t, "127.0.0.1:0", to), udpClient(t, "127.0.0.1:0", to)
	name1, seen1 := one()
	name2, _ := two()
	if name1 == name2 {
		t.Errorf("both clients at %s", name1)
	}
	for range 3 {
		if name, seen := one(); name != name1 || seen != seen1 {
			t.Errorf("the session moved to %s as %s", name, seen)
		}
	}
	time.Sleep(400 * time.Millisecond)
	if n := s.sessions.count(); n != 0 {
		t.Errorf("%d sessions after the idle time", n)
	}
	if _, seen := one(); seen == seen1 {
		t.Error("the same session after the idle time")
	}
	sum := s.Counts()[0].Sum
	for deadline := time.Now().Add(time.Second); sum.In != 6 && time.Now().Before(deadline); sum = s.Counts()[0].Sum {
		time.Sleep(time.Millisecond) // an answer may overtake the count of its question
	}
	if sum.Total != 3 || sum.In != 6 || sum.Out == 0 {
		t.Errorf("counts %+v", sum)
	}
}

// TestUDPTargetGone: a session ends with its target, at once.
func TestUDPTargetGone(t *testing.T) {
	s := serverFor(t, Settings{})
	a, b := udpNamed(t, "a"), udpNamed(t, "b")
	to := listen(t, s, udpTo("127.0.0.1:0", a))
	ask := udpClient(t, "127.0.0.1:0", to)
	if name, _ := ask(); name != "a" {
		t.Fatal(name)
	}
	l := udpTo("127.0.0.1:0", b)
	if now := listen(t, s, l); now != to {
		t.Fatalf("moved to %s", now)
	}
	if n := s.sessions.count(); n != 0 {
		t.Errorf("%d sessions left", n)
	}
	if name, _ := ask(); name != "b" {
		t.Errorf("then %s", name)
	}
	s.Prune(Config{})
	if n := s.sessions.count(); n != 0 {
		t.Errorf("%d sessions of a closed listener", n)
	}
}

// TestUDPRefused: a target that does not listen is left for the next.
func TestUDPRefused(t *testing.T) {
	s := serverFor(t, Settings{})
	l := udpTo("127.0.0.1:0", nobody(t), udpNamed(t, "b"))
	l.Routes[0].Affinity, l.Routes[0].Group = time.Hour, "g"
	ask := udpClient(t, "127.0.0.1:0", listen(t, s, l))
	if name, _ := ask(); name != "b" {
		t.Error(name)
	}
}

func TestUDPBounded(t *testing.T) {
	s := serverFor(t, Settings{MaxSessions: 5})
	to := listen(t, s, udpTo("127.0.0.1:0", udpNamed(t, "a")))
	for range 20 {
		if name, _ := udpClient(t, "127.0.0.1:0", to)(); name != "a" {
			t.Fatal(name)
		}
	}
	if n := s.sessions.count(); n != 5 {
		t.Errorf("%d sessions", n)
	}
	if _, n := s.Lost(); n != 15 {
		t.Errorf("%d ended for others", n)
	}
}

// TestUDPAnswersFromAddressAsked: one socket, many addresses.
func TestUDPAnswersFromAddressAsked(t *testing.T) {
	s := serverFor(t, Settings{})
	to := listen(t, s, udpTo("0.0.0.0:0", udpNamed(t, "a")))
	for _, asked := range []string{"127.0.0.1", "127.0.0.7"} {
		ask := udpClient(t, "127.0.0.3:0", netip.AddrPortFrom(netip.MustParseAddr(asked), to.Port()))
		if name, _ := ask(); name != "a" {
			t.Errorf("asked at %s: %s", asked, name)
		}
	}
	six := listen(t, s, udpTo("[::]:0", udpNamed(t, "a")))
	if name, _ := udpClient(t, "[::1]:0", netip.AddrPortFrom(netip.IPv6Loopback(), six.Port()))(); name != "a" {
		t.Errorf("IPv6: %s", name)
	}
}

// TestUDPAnswerUnderWay: an answer that is under way when its target goes gets there.
func TestUDPAnswerUnderWay(t *testing.T) {
	s := serverFor(t, Settings{})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	asked := make(chan net.Addr, 1)
	go func() {
		_, from, _ := pc.ReadFrom(make([]byte, 10))
		asked <- from
	}()
	to := listen(t, s, udpTo("127.0.0.1:0", pc.LocalAddr().(*net.UDPAddr).AddrPort()))
	c, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("?"))
	from := <-asked
	listen(t, s, udpTo("127.0.0.1:0", udpNamed(t, "b")))
	pc.WriteTo([]byte("late"), from)
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	buf := make([]byte, 10)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "late" {
		t.Errorf("%q %v", buf[:n], err)
	}
}
