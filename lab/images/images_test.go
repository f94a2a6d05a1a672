package images

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs makes a directory with the lab's programs in it.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuiltin(t *testing.T) {
	bin := programs(t, "agnhost", "fairway", "webd")
	m, err := LoadWith("", bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ref, first, bind string }{
		{"fairway:lab", "/usr/local/bin/fairway", bin + "/fairway"},
		{"registry.k8s.io/pause:3.10", "/pause", "{cinit}"},
		{"registry.k8s.io/e2e-test-images/agnhost:2.56", "/agnhost", bin + "/agnhost"},
		{"agnhost", "/agnhost", bin + "/agnhost"},
		{"registry.k8s.io/e2e-test-images/httpd:2.4.38-4", "/usr/local/bin/webd", bin + "/webd"},
		{"busybox:1.36", "sh", ""},
		{"docker.io/library/alpine@sha256:0123", "sh", ""},
		{"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0", "sh", ""},
		{"registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7", "sh", ""},
	} {
		image, err := m.Find(c.ref)
		if err != nil {
			t.Errorf("%s: %v", c.ref, err)
			continue
		}
		if argv := append(image.Entrypoint, image.Cmd...); argv[0] != c.first {
			t.Errorf("%s: runs %q", c.ref, argv)
		}
		if c.bind != "" && image.Binds[c.first] != c.bind {
			t.Errorf("%s: binds %q", c.ref, image.Binds)
		}
	}
	agnhost, err := m.Find("agnhost:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair([]byte(agnhost.Files["/localhost.crt"]), []byte(agnhost.Files["/localhost.key"])); err != nil {
		t.Errorf("agnhost's certificate: %v", err)
	}
}

// Both stands for nginx are there; which is taken depends on the machine.
func TestNginx(t *testing.T) {
	m, err := LoadWith("", programs(t, "webd"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := m.Find("nginx:1.14.2")
	if err != nil {
		t.Fatal(err)
	}
	want := "/usr/local/bin/webd"
	if _, err := os.Stat("/usr/sbin/nginx"); err == nil {
		want = "/usr/sbin/nginx"
	}
	if image.Entrypoint[0] != want {
		t.Errorf("nginx runs %q, want %s", image.Entrypoint, want)
	}
	if _, err := m.Find("registry.k8s.io/ingress-nginx/controller:v1.11"); !errors.Is(err, ErrNoImage) || !strings.Contains(err.Error(), "fairway serves Ingress") {
		t.Errorf("an Ingress controller: %v", err)
	}
}

func TestMissing(t *testing.T) {
	m, err := LoadWith("/etc/lab/images.yaml", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Find("mysql:8")
	for _, part := range []string{"/etc/lab/images.yaml", `{match: ["mysql:8"]`} {
		if !errors.Is(err, ErrNoImage) || !strings.Contains(err.Error(), part) {
			t.Errorf("advice lacks %q: %v", part, err)
		}
	}
	if _, err := m.Find("agnhost:2"); !errors.Is(err, ErrNoImage) || !strings.Contains(err.Error(), "/agnhost, which is missing") {
		t.Errorf("a program not built: %v", err)
	}
}

func TestOwnFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "images.yaml")
	m, err := LoadWith(name, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		// A change within the resolution of the file's time would not be seen.
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(time.Duration(len(text))*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	write("# mine\nimages:\n- match: ['*/shop/*:v?', busybox]\n  entrypoint: [/bin/true]\n")
	for ref, want := range map[string]bool{
		"registry.example/shop/a/cart:v1": true, "registry.example/shop/cart:v10": false, "busybox": true, "busybox:1": false,
	} {
		image, err := m.Find(ref)
		if got := err == nil && len(image.Entrypoint) > 0 && image.Entrypoint[0] == "/bin/true"; got != want {
			t.Errorf("%s: %v, want %v (%v)", ref, got, want, err)
		}
	}
	write("images:\n- entrypoint: [/bin/true]\n")
	if _, err := m.Find("busybox"); err == nil || !strings.Contains(err.Error(), "images[0]: no match") {
		t.Errorf("an entry without match: %v", err)
	}
	write("images:\n- match: [a]\n  entrypiont: [b]\n")
	if _, err := m.Find("a"); err == nil || !strings.Contains(err.Error(), "entrypiont") {
		t.Errorf("a misspelt field: %v", err)
	}
}
