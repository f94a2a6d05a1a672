package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// kubeadmCorefile is what kubeadm installs, but for how Pods' names are answered.
const kubeadmCorefile = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods %s
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . 127.0.0.9 {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

// TestCorefile: CoreDNS's own configuration is taken, and again when it changes; a bad one
// changes nothing and is said.
func TestCorefile(t *testing.T) {
	m := newMachine(t)
	path := filepath.Join(m.home, "Corefile")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(name string) []string {
		return []string{"dig", "+time=1", "+tries=1", "-p", "10053", "@127.0.0.1", name, "A"}
	}
	logged := func(what string) {
		t.Helper()
		for range 100 {
			if regexp.MustCompile(what).MatchString(m.log.String()) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("the program never says %s", what)
	}
	write(fmt.Sprintf(kubeadmCorefile, "disabled") + "other.example:53 {\n    rewrite name a b\n    forward . 127.0.0.9\n}\n")
	m.write("objects.yaml", fmt.Sprintf(objects, podA.Addr()))
	m.start("", "--roles", "dns", "--corefile", path)
	m.run(`(?s)NOERROR.*shop\.default\.svc\.cluster\.local\.\s+30\s+IN\s+A\s+10\.96\.0\.80`, ask("shop.default.svc.cluster.local")...)
	for path, want := range map[string]string{":8080/health": "^OK$", ":8181/ready": "^OK$", ":9153/metrics": `(?s)coredns_dns_requests_total\{.*coredns_plugin_enabled\{name="kubernetes"`} {
		m.run(want, "curl", "-s", "-m", "2", "http://127.0.0.1"+path)
	}
	m.run(`NXDOMAIN`, ask("10-1-1-1.default.pod.cluster.local")...)
	logged(`rewrite.*line 25`)
	write(fmt.Sprintf(kubeadmCorefile, "insecure"))
	m.run(`(?s)NOERROR.*\sA\s+10\.1\.1\.1`, ask("10-1-1-1.default.pod.cluster.local")...)
	// A change that brings no warning and takes none away is in force too.
	write(fmt.Sprintf(kubeadmCorefile, "disabled"))
	m.run(`NXDOMAIN`, ask("10-1-1-1.default.pod.cluster.local")...)
	write(fmt.Sprintf(kubeadmCorefile, "insecure"))
	m.run(`(?s)NOERROR.*\sA\s+10\.1\.1\.1`, ask("10-1-1-1.default.pod.cluster.local")...)
	// A file that is away for a while is said, and no more once it is back.
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	logged(`no such file or directory; the last good one stays in force`)
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	logged(`resolved.*InvalidCorefile`)
	write(fmt.Sprintf(kubeadmCorefile, "sometimes"))
	logged(`line 8: pods: \\?"sometimes`)
	m.run(`(?s)NOERROR.*\sA\s+10\.1\.1\.1`, ask("10-1-1-1.default.pod.cluster.local")...)
}
