package http_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	std "net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairway/server/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The default back end feature of the conformance suite: every method, with and
// without a host, and what both sides must see.
func TestDefaultBackend(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.1.1", nil))
	b := backendFor("echo")
	w.route("", "/", "echo").Spec.Rules = nil
	w.objects.Ingresses[0].Spec.DefaultBackend = &b
	if p := w.apply(); len(p) > 0 {
		t.Fatal(p)
	}
	c := w.client()
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
		for _, host := range []string{"10.9.9.9", "unknown.example.com"} {
			req, _ := std.NewRequest(method, "http://"+host+"/some/path", nil)
			req.Header.Set("User-Agent", "conformance")
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			s := parse(t, string(body))
			if resp.StatusCode != 200 || resp.Proto != "HTTP/1.1" || s.Proto != "HTTP/1.1" {
				t.Errorf("%s: %d %s, back end %s", method, resp.StatusCode, resp.Proto, s.Proto)
			}
			if s.Method != method || s.URI != "/some/path" || s.Host != host || s.Header.Get("User-Agent") != "conformance" {
				t.Errorf("back end saw %+v", s)
			}
			for _, h := range []string{"Content-Length", "Content-Type", "Date", "Server"} {
				if len(resp.Header[h]) != 1 {
					t.Errorf("%s: header %s is %q", method, h, resp.Header[h])
				}
			}
		}
	}
}

// The load balancing feature: a hundred requests reach all ten Pods.
func TestLoadBalancing(t *testing.T) {
	w := newWorld(t, nil)
	var pods []netip.AddrPort
	for i := range 10 {
		pods = append(pods, w.pod(fmt.Sprintf("10.0.2.%d", i+1), nil))
	}
	w.service("echo", pods...)
	w.route("lb.x", "/", "echo")
	w.apply()
	c, count := w.client(), map[string]int{}
	for range 100 {
		_, body := w.get(c, "http://lb.x/")
		count[parse(t, body).Pod]++
	}
	for pod, n := range count {
		if n != 10 {
			t.Errorf("%s got %d of 100", pod, n)
		}
	}
	if len(count) != 10 {
		t.Errorf("only %d Pods reached", len(count))
	}
}

func TestForwardedFields(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.3.1", nil))
	w.route("a.x", "/", "echo")
	w.apply()
	_, body := w.raw("GET / HTTP/1.1\r\nHost: a.x:8080\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX_Forwarded_Proto: https\r\nX-Real-Ip: 6.6.6.6\r\n" +
		"Ssl-Client-Verify: SUCCESS\r\nX-Original-Url: /admin\r\nProxy: evil\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-Prefix: /admin\r\n" +
		"Connection: close, X-Forwarded-Host, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 1\r\nTe: gzip\r\nUpgrade: h2c\r\nX-Request-Id: given-id\r\nX-Mine: kept\r\n\r\n")
	h := parse(t, body).Header
	want := map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "a.x:8080", "X-Forwarded-Port": "80",
		"X-Forwarded-Scheme": "http", "X-Scheme": "http", "X-Request-Id": "given-id", "X-Mine": "kept",
	}
	for k, v := range want {
		if len(h[k]) != 1 || h[k][0] != v {
			t.Errorf("%s = %q, want %q", k, h[k], v)
		}
	}
	for _, k := range []string{"X_forwarded_proto", "Ssl-Client-Verify", "X-Original-Url", "Proxy", "Forwarded", "X-Forwarded-Prefix", "X-Secret", "Keep-Alive", "Te", "Upgrade", "User-Agent", "Connection"} {
		if v, ok := h[k]; ok {
			t.Errorf("%s = %q reached the back end", k, v)
		}
	}
}

func TestTrustedPeer(t *testing.T) {
	w := newWorld(t, func(c *http.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")}
	})
	w.service("echo", w.pod("10.0.3.2", nil))
	i := w.route("a.x", "/", "echo", "force-ssl-redirect", "true")
	w.secure(i, "tls", "a.x")
	w.apply()
	resp, body := w.raw("GET / HTTP/1.1\r\nHost: a.x\r\nX-Forwarded-For: 6.6.6.6, 203.0.113.7, 192.0.2.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\nConnection: close\r\n\r\n")
	if resp.StatusCode != 200 {
		t.Fatalf("a request that came by https to the trusted peer got %d", resp.StatusCode)
	}
	h := parse(t, body).Header
	if h.Get("X-Real-Ip") != "203.0.113.7" || h.Get("X-Forwarded-For") != "203.0.113.7, 192.0.2.9, 127.0.0.1" || h.Get("X-Forwarded-Port") != "8443" {
		t.Errorf("header %v", h)
	}
	_, body = w.raw("GET / HTTP/1.1\r\nHost: a.x\r\nX-Forwarded-For: 6.6.6.6, unknown, 192.0.2.9\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n")
	if h := parse(t, body).Header; h.Get("X-Real-Ip") != "192.0.2.9" || h.Get("X-Forwarded-For") != "192.0.2.9, 127.0.0.1" {
		t.Errorf("past a hop that is no address: %v", h)
	}
	if !strings.HasPrefix(w.log.String(), "203.0.113.7 - ") {
		t.Errorf("log %q", w.log)
	}
}

func TestPathIsForwardedAsMatched(t *testing.T) {
	w := newWorld(t, nil)
	w.service("public", w.pod("10.0.4.1", nil))
	w.service("admin", w.pod("10.0.4.2", nil))
	w.route("a.x", "/", "public")
	w.route("a.x", "/admin", "admin")
	w.apply()
	for path, want := range map[string]string{
		"/a%2Fb?x=%2e%2e/&y":   "10.0.4.1 /a%2Fb?x=%2e%2e/&y",
		"//admin//x/":          "10.0.4.2 /admin/x/",
		"/y/%2e%2e/admin?":     "10.0.4.2 /admin?",
		"/caf%c3%a9/%41%20!":   "10.0.4.1 /caf%C3%A9/A%20!",
		"http://a.x/admin/q?z": "10.0.4.2 /admin/q?z",
	} {
		_, body := w.raw("GET " + path + " HTTP/1.1\r\nHost: a.x\r\nConnection: close\r\n\r\n")
		s := parse(t, body)
		if got := s.Pod + " " + s.URI; got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{"/admin%2Fx", "/..%2fadmin", "/a%00", "/x/..;/admin", "/../admin", "/a\\b"} {
		if resp, _ := w.raw("GET " + path + " HTTP/1.1\r\nHost: a.x\r\nConnection: close\r\n\r\n"); resp.StatusCode != 400 {
			t.Errorf("%s: %d, want 400", path, resp.StatusCode)
		}
	}
}

func TestOwnAnswers(t *testing.T) {
	w := newWorld(t, nil)
	dead, _ := netip.ParseAddrPort("10.0.5.9:1")
	w.service("empty")
	w.service("dead", dead)
	w.route("empty.x", "/", "empty")
	w.route("missing.x", "/", "missing")
	w.route("dead.x", "/", "dead")
	w.route("auth.x", "/", "empty", "auth-url", "http://auth/")
	w.apply()
	c := w.client()
	for url, want := range map[string]int{"http://nowhere.x/": 404, "http://empty.x/": 503, "http://missing.x/": 503, "http://dead.x/": 502, "http://auth.x/": 503} {
		resp, body := w.get(c, url)
		if resp.StatusCode != want || resp.Header.Get("Server") == "" {
			t.Errorf("%s: %d %q", url, resp.StatusCode, body)
		}
		if want == 404 && body != "default backend - 404" {
			t.Errorf("404 says %q", body)
		}
	}
	if resp, _ := w.raw("TRACE / HTTP/1.1\r\nHost: empty.x\r\nConnection: close\r\n\r\n"); resp.StatusCode != 405 {
		t.Errorf("TRACE: %d", resp.StatusCode)
	}
}

func TestTLS(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.6.1", nil))
	shop := w.secure(w.route("shop.x", "/", "echo"), "shop", "shop.x")
	wild := w.secure(w.route("*.wild.x", "/", "echo"), "wild", "*.wild.x")
	w.secure(w.route("bad.x", "/", "echo"), "bad", "bad.x")
	w.objects.Secrets[2].Data["tls.key"] = w.objects.Secrets[0].Data["tls.key"]
	w.route("plain.x", "/", "echo")
	if p := w.apply(); len(p) != 1 || p[0].Reason != "InvalidCertificate" {
		t.Errorf("problems %v", p)
	}
	c := w.client(shop, wild)
	for _, url := range []string{"https://shop.x/", "https://a.wild.x/"} {
		resp, body := w.get(c, url)
		if resp.StatusCode != 200 || resp.Proto != "HTTP/2.0" || resp.TLS.Version != tls.VersionTLS13 || resp.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: %d %s", url, resp.StatusCode, resp.Proto)
		}
		if h := parse(t, body).Header; h.Get("X-Forwarded-Proto") != "https" || h.Get("X-Forwarded-Port") != "443" {
			t.Errorf("%s: %v", url, h)
		}
	}
	for _, sni := range []string{"bad.x", "plain.x", "unknown.x", ""} {
		if cn := subject(t, w.https, sni); cn != "Fairway default certificate" {
			t.Errorf("SNI %q got %q", sni, cn)
		}
	}
	if _, err := tls.Dial("tcp", w.https, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

func subject(t *testing.T, addr, sni string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: sni})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// A new Secret is served from the next handshake on; open connections go on.
func TestCertificateRotation(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.6.2", nil))
	first := w.secure(w.route("shop.x", "/", "echo"), "shop", "shop.x")
	w.apply()
	old := w.client(first)
	w.get(old, "https://shop.x/")
	second := w.secret("shop", "shop.x")
	w.apply()
	if resp, _ := w.get(w.client(second), "https://shop.x/"); !resp.TLS.PeerCertificates[0].Equal(second) {
		t.Error("the old certificate is still served")
	}
	if resp, _ := w.get(old, "https://shop.x/"); resp.StatusCode != 200 {
		t.Errorf("the old connection got %d", resp.StatusCode)
	}
}

// SNI chooses the certificate, Host the route: a connection made for one host must not
// reach another with a certificate of its own.
func TestMisdirected(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.6.3", nil))
	w.secure(w.route("open.x", "/", "echo"), "open", "open.x", "also.x")
	w.secure(w.route("closed.x", "/", "echo"), "closed", "closed.x")
	also := w.route("also.x", "/", "echo")
	also.Spec.TLS = w.objects.Ingresses[0].Spec.TLS
	w.apply()
	for _, row := range []struct {
		sni, host string
		want      int
	}{{"open.x", "open.x", 200}, {"open.x", "OPEN.x.:443", 200}, {"open.x", "closed.x", 421}, {"open.x", "also.x", 200}, {"", "closed.x", 200}, {"open.x", "nowhere.x", 421}} {
		conn, err := tls.Dial("tcp", w.https, &tls.Config{InsecureSkipVerify: true, ServerName: row.sni})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", row.host)
		resp, err := std.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if resp.StatusCode != row.want {
			t.Errorf("SNI %q, Host %q: %d, want %d", row.sni, row.host, resp.StatusCode, row.want)
		}
	}
}

func TestRedirect(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.7.1", nil))
	w.secure(w.route("shop.x", "/", "echo"), "shop", "shop.x")
	w.secure(w.route("both.x", "/", "echo", "ssl-redirect", "false"), "both", "both.x")
	w.apply()
	c := w.client()
	resp, _ := w.get(c, "http://shop.x:80/a//b?c=d")
	if resp.StatusCode != 308 || resp.Header.Get("Location") != "https://shop.x/a/b?c=d" {
		t.Errorf("%d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	for _, url := range []string{"http://shop.x/.well-known/acme-challenge/token.x", "http://both.x/"} {
		if resp, _ := w.get(c, url); resp.StatusCode != 200 {
			t.Errorf("%s: %d", url, resp.StatusCode)
		}
	}
}

// The same with curl, the reader's own client.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.7.2", nil))
	w.secure(w.route("shop.x", "/", "echo"), "shop", "shop.x")
	w.apply()
	out, err := exec.Command(curl, "-sk", "-L", "--max-time", "10", "-o", "/dev/null", "-w", "%{num_redirects} %{http_code} %{http_version} %{url_effective}",
		"--connect-to", "shop.x:80:"+w.http, "--connect-to", "shop.x:443:"+w.https, "http://shop.x/cart?x=1").CombinedOutput()
	if err != nil || string(out) != "1 200 2 https://shop.x/cart?x=1" {
		t.Errorf("curl: %s %v", out, err)
	}
}

func TestAffinity(t *testing.T) {
	w := newWorld(t, nil)
	pods := []netip.AddrPort{w.pod("10.0.8.1", nil), w.pod("10.0.8.2", nil), w.pod("10.0.8.3", nil)}
	w.service("echo", pods...)
	w.secure(w.route("shop.x", "/cart", "echo", "affinity", "cookie", "ssl-redirect", "false", "session-cookie-max-age", "600", "session-cookie-samesite", "Lax"), "tls", "shop.x")
	w.apply()
	c := w.client()
	resp, body := w.get(c, "http://shop.x/cart")
	set := resp.Header.Get("Set-Cookie")
	m := regexp.MustCompile(`^INGRESSCOOKIE=([0-9a-f]{32}); Path=/cart; Max-Age=600; HttpOnly; SameSite=Lax$`).FindStringSubmatch(set)
	if m == nil {
		t.Fatalf("Set-Cookie %q", set)
	}
	first := parse(t, body).Pod
	with := func(value string) (pod, cookie string) {
		req, _ := std.NewRequest("GET", "http://shop.x/cart", nil)
		req.AddCookie(&std.Cookie{Name: "INGRESSCOOKIE", Value: value})
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return parse(t, string(b)).Pod, resp.Header.Get("Set-Cookie")
	}
	for range 10 {
		if pod, set := with(m[1]); pod != first || set != "" {
			t.Fatalf("the cookie of %s led to %s, Set-Cookie %q", first, pod, set)
		}
	}
	var left []netip.AddrPort
	for _, p := range pods {
		if p.Addr().String() != first {
			left = append(left, p)
		}
	}
	w.endpoints("echo", left...)
	w.apply()
	if pod, set := with(m[1]); pod == first || !strings.HasPrefix(set, "INGRESSCOOKIE=") {
		t.Errorf("after the Pod went: %s, Set-Cookie %q", pod, set)
	}
}

// A Pod that refuses connections costs nobody a request, bodies included.
func TestRetryOnAnotherEndpoint(t *testing.T) {
	w := newWorld(t, nil)
	dead := netip.MustParseAddrPort("10.0.9.9:1")
	w.service("echo", w.pod("10.0.9.1", nil), dead)
	w.route("a.x", "/", "echo")
	w.apply()
	c := w.client()
	for range 10 {
		resp, err := c.Post("http://a.x/", "text/plain", strings.NewReader("payload"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || parse(t, string(body)).Body != "payload" {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if !strings.Contains(w.log.String(), "[default-echo-80] [] 10.0.9.9:1, 10.0.9.1:") {
		t.Errorf("the log does not list both endpoints:\n%s", w.log)
	}
}

func TestTimeouts(t *testing.T) {
	w := newWorld(t, func(c *http.Config) { c.ReadTimeout = 300 * time.Millisecond })
	slow := std.HandlerFunc(func(rw std.ResponseWriter, r *std.Request) {
		if r.URL.Path == "/drip" { // never silent for longer than the limit, but longer in all
			for range 6 {
				fmt.Fprint(rw, "drop\n")
				rw.(std.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(2 * time.Second):
		}
	})
	w.service("slow", w.pod("10.0.10.1", slow))
	w.route("a.x", "/", "slow")
	w.route("patient.x", "/", "slow", "proxy-read-timeout", "10")
	w.apply()
	c := w.client()
	if resp, _ := w.get(c, "http://a.x/hang"); resp.StatusCode != 504 {
		t.Errorf("a silent endpoint: %d", resp.StatusCode)
	}
	if _, body := w.get(c, "http://a.x/drip"); strings.Count(body, "drop") != 6 {
		t.Errorf("a slow answer was cut: %q", body)
	}
	if resp, _ := w.get(c, "http://patient.x/hang"); resp.StatusCode != 200 {
		t.Errorf("with its own timeout: %d", resp.StatusCode)
	}
	// A kept connection that has been idle for most of the limit gets all of it anew.
	w.get(c, "http://a.x/drip")
	time.Sleep(250 * time.Millisecond)
	if resp, _ := w.get(c, "http://a.x/drip"); resp.StatusCode != 200 {
		t.Errorf("after idling: %d", resp.StatusCode)
	}
}

// TestBadChunk: a body that is none is the client's fault, not the endpoint's.
func TestBadChunk(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.11.1", nil))
	w.route("a.x", "/", "echo")
	w.apply()
	for _, chunk := range []string{"fffffffffffffffff\r\nx", "xyz\r\n", "1\r\nab\r\n0\r\n\r\n"} {
		resp, _ := w.raw("POST / HTTP/1.1\r\nHost: a.x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
		if resp.StatusCode != 400 {
			t.Errorf("%q: %d, want 400", chunk, resp.StatusCode)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	w := newWorld(t, nil)
	w.service("echo", w.pod("10.0.11.1", nil))
	w.route("a.x", "/", "echo")
	w.route("big.x", "/", "echo", "proxy-body-size", "3m")
	w.apply()
	c := w.client()
	two := strings.Repeat("x", 2<<20)
	for _, row := range []struct {
		host string
		body io.Reader
		want int
	}{
		{"a.x", strings.NewReader(two), 413},
		{"a.x", io.MultiReader(strings.NewReader(two)), 413}, // chunked: no length to go by
		{"a.x", strings.NewReader(two[:1<<20]), 200},
		{"big.x", strings.NewReader(two), 200},
		{"big.x", io.MultiReader(strings.NewReader(two)), 200},
	} {
		resp, err := c.Post("http://"+row.host+"/", "text/plain", row.body)
		if err != nil {
			t.Errorf("%s: %v", row.host, err)
			continue
		}
		io.Copy(io.Discard, resp.Body) //nolint:errcheck // only the status counts
		resp.Body.Close()
		if resp.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", row.host, resp.StatusCode, row.want)
		}
	}
}

func TestExternalName(t *testing.T) {
	where := map[string]string{"api.example.com": "", "localhost": "127.0.0.1"}
	w := newWorld(t, func(c *http.Config) {
		c.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
			if where[name] == "" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr(where[name])}, nil
		}
	})
	pod := w.pod("10.0.12.1", nil)
	where["api.example.com"] = "10.0.12.1"
	for name, to := range map[string]string{"good": "api.example.com", "inward": "localhost", "gone": "gone.example.com"} {
		w.objects.Services = append(w.objects.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: to, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intOrString(pod.Port())}}}})
		w.route(name+".x", "/", name)
	}
	w.apply()
	c := w.client()
	for host, want := range map[string]int{"good.x": 200, "inward.x": 502, "gone.x": 502} {
		if resp, body := w.get(c, "http://"+host+"/"); resp.StatusCode != want {
			t.Errorf("%s: %d %s", host, resp.StatusCode, body)
		}
	}
}
