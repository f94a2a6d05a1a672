package resolver

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairway/lab/netspace"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
)

const hosts = `
# comment
192.0.2.1   www.a.example  www.example.org WWW.EXAMPLE.NET.
192.0.2.2   www.a.example
2001:db8::1 www.a.example
nonsense    x.example
192.0.2.3
`

func TestAnswer(t *testing.T) {
	table, bad := Parse(hosts)
	if len(bad) != 2 || !strings.HasPrefix(bad[0], "line 6:") {
		t.Errorf("problems: %q", bad)
	}
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"www.a.example.", dnsmessage.TypeA, "A 192.0.2.1, A 192.0.2.2"},
		{"www.a.example.", dnsmessage.TypeAAAA, "AAAA 2001:db8::1"},
		{"www.a.example.", dnsmessage.TypeTXT, ""},
		{"Www.Example.org.", dnsmessage.TypeA, "CNAME www.a.example., A 192.0.2.1, A 192.0.2.2"},
		{"www.example.net.", dnsmessage.TypeTXT, "CNAME www.a.example."},
		{"www.example.net.", dnsmessage.TypeCNAME, "CNAME www.a.example."},
		{"a.example.", dnsmessage.TypeA, ""},
		{".", dnsmessage.TypeNS, ""},
		{"x.example.", dnsmessage.TypeA, "NXDOMAIN"},
		{"other.www.a.example.", dnsmessage.TypeA, "NXDOMAIN"},
	} {
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(c.name), Type: c.kind, Class: dnsmessage.ClassINET}
		if got := words(table.Answer(q)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.kind, got, c.want)
		}
	}
}

func words(list []dnsmessage.Resource, code dnsmessage.RCode) string {
	if code == dnsmessage.RCodeNameError {
		return "NXDOMAIN"
	}
	var out []string
	for _, r := range list {
		switch b := r.Body.(type) {
		case *dnsmessage.CNAMEResource:
			out = append(out, "CNAME "+b.CNAME.String())
		case *dnsmessage.AResource:
			out = append(out, "A "+netip.AddrFrom4(b.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, "AAAA "+netip.AddrFrom16(b.AAAA).String())
		}
	}
	return strings.Join(out, ", ")
}

// TestServe asks a served resolver in a namespace of its own by UDP and TCP,
// with the resolver of the standard library, and changes the file meanwhile.
func TestServe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	ns, err := netspace.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	at := netip.MustParseAddr("127.0.0.1")
	if err := netspace.Do(ns, raiseLoopback); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("192.0.2.1 www.a.example www.example.org\n")
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- Resolver{file}.Serve(ctx, ns, []netip.Addr{at}) }()
	for _, network := range []string{"udp", "tcp"} {
		asker := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			for c == nil && ctx.Err() == nil {
				_ = netspace.Do(ns, func() error {
					c, err = net.Dial(network, "127.0.0.1:53")
					return nil
				})
			}
			return c, err
		}}
		write("192.0.2.1 www.a.example www.example.org\n")
		lookup(ctx, t, asker, "www.example.org.", "192.0.2.1")
		write("192.0.2.9 www.a.example www.example.org\n")
		lookup(ctx, t, asker, "www.example.org.", "192.0.2.9")
		lookup(ctx, t, asker, "nowhere.example.", "no such host")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// lookup asks until the answer comes, as the server may not be there yet.
func lookup(ctx context.Context, t *testing.T, r *net.Resolver, name, want string) {
	t.Helper()
	got := ""
	for ctx.Err() == nil {
		addrs, err := r.LookupHost(ctx, name)
		if got = strings.Join(addrs, " "); err != nil {
			got = err.Error()
		}
		if strings.Contains(got, want) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: %q, want %q", name, got, want)
}

func raiseLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
