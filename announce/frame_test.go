package announce

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestARPFrame(t *testing.T) {
	// who-has 10.0.0.9 tell 10.0.0.1 (02:00:00:00:00:01), as RFC 826 lays it out.
	raw := unhex(t, "ffffffffffff"+"020000000001"+"0806"+"0001"+"0800"+"06"+"04"+"0001"+"020000000001"+"0a000001"+"000000000000"+"0a000009")
	a, ok := ParseARP(raw)
	if !ok || a.Op != ARPRequest || a.Target != netip.MustParseAddr("10.0.0.9") || a.Sender != netip.MustParseAddr("10.0.0.1") {
		t.Fatalf("read as %+v, %v", a, ok)
	}
	if !bytes.Equal(a.Frame(), raw) {
		t.Errorf("written as %x", a.Frame())
	}
	want := unhex(t, "020000000001"+"020000000009"+"0806"+"0001"+"0800"+"06"+"04"+"0002"+"020000000009"+"0a000009"+"020000000001"+"0a000001")
	if got := a.Answer(MAC{2, 0, 0, 0, 0, 9}).Frame(); !bytes.Equal(got, want) {
		t.Errorf("answer\n%x, want\n%x", got, want)
	}
	if _, claims := a.Claim(); claims {
		t.Error("a plain request claims nothing")
	}
	if ip, claims := Gratuitous(ARPRequest, a.Target, MAC{2}).Claim(); !claims || ip != a.Target {
		t.Error("a gratuitous request claims its address")
	}
	if _, claims := (ARP{Op: ARPRequest, Sender: netip.IPv4Unspecified(), Target: a.Target}).Claim(); claims {
		t.Error("a probe claims nothing")
	}
}

func TestNeighbourFrame(t *testing.T) {
	// A solicitation as a Linux kernel sends it: fd00::1 asks for fd00::9.
	src, target := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::9")
	ns := Neighbour{To: MAC{0x33, 0x33, 0xff, 0, 0, 9}, From: MAC{2, 0, 0, 0, 0, 1}, Src: src, Dst: SolicitedNode(target), Target: target, Link: MAC{2, 0, 0, 0, 0, 1}, HasLink: true}
	raw := unhex(t, "3333ff000009"+"020000000001"+"86dd"+"60000000"+"0020"+"3a"+"ff"+
		"fd000000000000000000000000000001"+"ff0200000000000000000001ff000009"+
		"8700"+"7d89"+"00000000"+"fd000000000000000000000000000009"+"0101"+"020000000001")
	got := ns.Frame()
	if !bytes.Equal(got, raw) {
		t.Fatalf("written as\n%x, want\n%x", got, raw)
	}
	back, ok := ParseNeighbour(got)
	if !ok || back != ns {
		t.Fatalf("read back as %+v, %v", back, ok)
	}
	na := ns.Answer(MAC{2, 0, 0, 0, 0, 9})
	if na.Dst != src || na.To != ns.Link || !na.Solicited || !na.Override || na.Target != target {
		t.Errorf("answer %+v", na)
	}
	if got, ok := ParseNeighbour(na.Frame()); !ok || got != na {
		t.Errorf("answer read back as %+v, %v", got, ok)
	}
	ns.Src, ns.HasLink, ns.Link = netip.IPv6Unspecified(), false, MAC{}
	if na := ns.Answer(MAC{2}); na.Dst != netip.MustParseAddr("ff02::1") || na.Solicited {
		t.Errorf("answer to duplicate detection %+v", na)
	}
	for _, i := range []int{etherLen + 7, etherLen + 42, etherLen + 50} { // hop limit, checksum, target
		bad := bytes.Clone(got)
		bad[i] ^= 1
		if _, ok := ParseNeighbour(bad); ok {
			t.Errorf("byte %d changed: still accepted", i)
		}
	}
}

func FuzzFrame(f *testing.F) {
	v4, v6 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
	f.Add(Gratuitous(ARPRequest, v4, MAC{2}).Frame())
	f.Add(Gratuitous(ARPReply, v4, MAC{2}).Frame())
	f.Add(Unsolicited(v6, MAC{2}).Frame())
	f.Add(Neighbour{Src: v6, Dst: SolicitedNode(v6), Target: v6}.Frame())
	f.Add(make([]byte, 86))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, ok := ParseARP(b); ok {
			if again := a.Frame(); !bytes.Equal(again, b[:arpLen]) {
				t.Fatalf("ARP %x written again as %x", b, again)
			}
			a.Answer(MAC{1}).Frame()
		}
		if n, ok := ParseNeighbour(b); ok {
			again, ok := ParseNeighbour(n.Frame())
			if !ok || again != n {
				t.Fatalf("neighbour %+v written and read again: %+v, %v", n, again, ok)
			}
			n.Answer(MAC{1}).Frame()
		}
	})
}
