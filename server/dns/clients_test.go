package dnsserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestGoResolver(t *testing.T) {
	_, addr := serve(t, buildZone(t, objects), Config{})
	ctx := context.Background()
	for _, network := range []string{"udp", "tcp"} {
		r := &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr.String())
		}}
		hosts, err := r.LookupHost(ctx, "nginx-svc.default.svc.cluster.local.")
		check(t, network+" host", hosts, err, "10.96.0.80", "fd00:96::80")
		_, srv, err := r.LookupSRV(ctx, "sql", "tcp", "db.default.svc.cluster.local.")
		var targets []string
		for _, s := range srv {
			targets = append(targets, fmt.Sprint(s.Target, s.Port))
		}
		check(t, network+" srv", targets, err, "10-244-0-4.db.default.svc.cluster.local.3306", "db-0.db.default.svc.cluster.local.3306", "db-1.db.default.svc.cluster.local.3306")
		names, err := r.LookupAddr(ctx, "10.244.0.2")
		check(t, network+" ptr", names, err, "db-0.db.default.svc.cluster.local.")
		names, err = r.LookupAddr(ctx, "fd00:96::80")
		check(t, network+" ptr6", names, err, "nginx-svc.default.svc.cluster.local.")
		txt, err := r.LookupTXT(ctx, "dns-version.cluster.local.")
		check(t, network+" txt", txt, err, "1.1.0")
		cname, err := r.LookupCNAME(ctx, "inside.default.svc.cluster.local.")
		check(t, network+" cname", []string{cname}, err, "nginx-svc.default.svc.cluster.local.")
		_, err = r.LookupHost(ctx, "gone.default.svc.cluster.local.")
		if dnsErr, ok := err.(*net.DNSError); !ok || !dnsErr.IsNotFound {
			t.Errorf("%s: %v", network, err)
		}
	}
}

func check(t *testing.T, what string, got []string, err error, want ...string) {
	t.Helper()
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: got %v, %v; want %v", what, got, err, want)
	}
}

// TestDig runs the queries of the Kubernetes conformance probes with dig.
func TestDig(t *testing.T) {
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("dig (bind9-dnsutils) is not installed")
	}
	_, addr := serve(t, buildZone(t, objects), Config{})
	search := []string{"+search", "+ndots=5", "+noall", "+answer", "+short", "+domain=default.svc.cluster.local"}
	for _, tcp := range []string{"+notcp", "+tcp"} {
		for _, tc := range []struct {
			args []string
			want string
		}{
			{append(search, "nginx-svc", "A"), "10.96.0.80"},
			{append(search, "nginx-svc", "AAAA"), "fd00:96::80"},
			{append(search, "_http._tcp.nginx-svc", "SRV"), "0 50 80 nginx-svc.default.svc.cluster.local."},
			{append(search, "db-1.db", "A"), "10.244.0.3"},
			{append(search, "external-svc", "CNAME"), "www.example.com."},
			{[]string{"+short", "-x", "10.96.0.80"}, "nginx-svc.default.svc.cluster.local."},
			{[]string{"+short", "-x", "fd00:96::80"}, "nginx-svc.default.svc.cluster.local."},
			{[]string{"+short", "-x", "10.244.0.4"}, "10-244-0-4.db.default.svc.cluster.local."},
			{[]string{"+short", "cluster.local", "NS"}, "kube-dns.kube-system.svc.cluster.local."},
			{[]string{"+short", "dns-version.cluster.local", "TXT"}, `"1.1.0"`},
		} {
			if got := dig(t, addr, append(tc.args, tcp)...); got != tc.want {
				t.Errorf("dig %v: got %q, want %q", tc.args, got, tc.want)
			}
		}
	}
	if out := dig(t, addr, "+cookie", "gone.default.svc.cluster.local", "A"); !strings.Contains(out, "status: NXDOMAIN") || strings.Contains(out, "WARNING: Message parser") {
		t.Errorf("dig: %s", out)
	}
}

func dig(t *testing.T, addr netip.AddrPort, args ...string) string {
	t.Helper()
	args = append([]string{"@" + addr.Addr().String(), "-p", fmt.Sprint(addr.Port()), "+tries=1", "+time=5", "-r"}, args...)
	out, err := exec.Command("dig", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
