package peer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/bench/apiserver"
	"fairway/kube"

	wire "github.com/miekg/dns"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	coreDNS = "../../bin/bench-coredns"
	fairway = "../../bin/fairway"
	// kubeadm is what kubeadm installs, less what needs ports or another server.
	kubeadm = `.:53 {
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    loadbalance
}
`
)

// TestDNS asks CoreDNS 1.14.7 and Fairway what the rows of the package dns ask, each with
// the row file's Corefile, of one API server: response code, flags and records must be the
// same, but for what differences lists.
func TestDNS(t *testing.T) {
	skip := t.Skip
	if os.Getenv("FAIRWAY_REQUIRE_PEER") == "1" {
		skip = t.Fatal
	}
	for _, bin := range []string{coreDNS, fairway} {
		if _, err := os.Stat(bin); err != nil {
			skip("nothing to compare: make test-peer builds ", bin)
		}
	}
	paths, err := filepath.Glob("../../dns/testdata/rows/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no rows", err)
	}
	url, upstream := apiOf(t), internet(t)
	asked, differ := 0, map[string]bool{}
	for i, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		corefile, rows := kubeadm, ""
		for _, f := range archive.Files {
			switch f.Name {
			case "Corefile":
				corefile = string(f.Data)
			case "rows":
				rows = string(f.Data)
			}
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			theirs, ours := fmt.Sprintf("127.0.54.%d", 2*i+1), fmt.Sprintf("127.0.54.%d", 2*i+2)
			startCoreDNS(t, corefile, theirs, url, upstream)
			startFairway(t, corefile, ours, url, upstream)
			asked += compareRows(t, rows, theirs+":5353", ours+":5353", differ)
		})
	}
	if asked < 250 {
		t.Errorf("only %d questions asked", asked)
	}
	for q, why := range differences() {
		if !differ[q] {
			t.Errorf("%s is answered alike, though %s", q, why)
		}
	}
}

// apiOf serves the rows' cluster.
func apiOf(t *testing.T) string {
	t.Helper()
	yaml, err := os.ReadFile("../../dns/testdata/rows/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o, problems := kube.Decode("cluster.yaml", yaml)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	api := apiserver.New()
	put := func(obj apiserver.Object) {
		if err := api.Put(obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range o.Namespaces {
		put(n)
	}
	put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	tcp := func(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) } // an API server's default
	for _, s := range o.Services {
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].Protocol = tcp(s.Spec.Ports[i].Protocol)
		}
		put(s)
	}
	for _, s := range o.EndpointSlices {
		for i, p := range s.Ports {
			s.Ports[i].Protocol = ptr.To(tcp(ptr.Deref(p.Protocol, "")))
		}
		put(s)
	}
	for _, p := range o.Pods {
		put(p)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: api}
	t.Cleanup(func() { s.Close() })
	go s.Serve(l)
	return "http://" + l.Addr().String()
}

// internet is the upstream of both: www.example.com has addresses, nothing else exists.
func internet(t *testing.T) string {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.54.200:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	h := wire.HandlerFunc(func(w wire.ResponseWriter, r *wire.Msg) {
		m := new(wire.Msg).SetReply(r)
		m.RecursionAvailable = true
		rr := ""
		if strings.EqualFold(r.Question[0].Name, "www.example.com.") {
			rr = map[uint16]string{wire.TypeA: "www.example.com. 60 IN A 192.0.2.80", wire.TypeAAAA: "www.example.com. 60 IN AAAA 2001:db8::80"}[r.Question[0].Qtype]
		} else {
			m.Rcode = wire.RcodeNameError
		}
		if rr != "" {
			record, _ := wire.NewRR(rr)
			m.Answer = []wire.RR{record}
		} else {
			soa, _ := wire.NewRR(". 60 IN SOA a. b. 1 2 3 4 60")
			m.Ns = []wire.RR{soa}
		}
		_ = w.WriteMsg(m)
	})
	for _, s := range []*wire.Server{{PacketConn: pc, Handler: h}, {Listener: l, Handler: h}} {
		go s.ActivateAndServe() //nolint:errcheck // ends with the test
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return pc.LocalAddr().String()
}

func startCoreDNS(t *testing.T, corefile, addr, url, upstream string) {
	t.Helper()
	text := strings.Replace(corefile, ".:53 {", fmt.Sprintf(".:5353 {\n    bind %s\n    forward . %s", addr, upstream), 1)
	open := strings.Index(text, "kubernetes")
	brace := open + strings.Index(text[open:], "{") + 1
	path := filepath.Join(t.TempDir(), "Corefile")
	write(t, path, text[:brace]+"\n        endpoint "+url+text[brace:])
	begin(t, addr, coreDNS, "-conf", path)
}

func startFairway(t *testing.T, corefile, addr, url, upstream string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), strings.Replace(corefile, ".:53 {", ".:53 {\n    forward . "+upstream, 1))
	write(t, filepath.Join(dir, "kubeconfig"), fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters: [{name: a, cluster: {server: %q}}]\nusers: [{name: a, user: {}}]\n", url))
	write(t, filepath.Join(dir, "config"), fmt.Sprintf("proxy: {metricsBindAddress: '', healthzBindAddress: ''}\ndns:\n  listen: ['%s:5353']\n  corefile: %s\n", addr, filepath.Join(dir, "Corefile")))
	begin(t, addr, fairway, "run", "--roles", "dns", "--node", "node1", "--config", filepath.Join(dir, "config"), "--kubeconfig", filepath.Join(dir, "kubeconfig"))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// begin runs a server until the test ends, and waits for it to know the cluster.
func begin(t *testing.T, addr string, argv ...string) {
	t.Helper()
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", argv[0], log.String())
		}
	})
	for range 200 {
		if m, err := ask(addr+":5353", "web.shop.svc.cluster.local.", wire.TypeA, "udp"); err == nil && m.Rcode == wire.RcodeSuccess {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s never answers", argv[0])
}

func ask(addr, name string, qtype uint16, network string) (*wire.Msg, error) {
	m := new(wire.Msg).SetQuestion(name, qtype)
	m.SetEdns0(1232, false)
	c := wire.Client{Net: network, Timeout: 2 * time.Second}
	r, _, err := c.Exchange(m, addr)
	return r, err
}

// compareRows asks both what the rows ask, by UDP and TCP, and returns how many questions
// that were. It adds those of differences that do differ to differ.
func compareRows(t *testing.T, rows, theirs, ours string, differ map[string]bool) int {
	t.Helper()
	n, known := 0, differences()
	for _, row := range strings.Split(rows, "\n") {
		question, _, ok := strings.Cut(row, " => ")
		name, types, ok2 := strings.Cut(question, " ")
		if !ok || !ok2 || strings.HasPrefix(row, "#") {
			continue
		}
		for _, typ := range strings.Split(strings.TrimSpace(types), ",") {
			n++
			name = wire.Fqdn(name)
			for _, network := range []string{"udp", "tcp"} {
				a, err := ask(theirs, name, wire.StringToType[typ], network)
				b, err2 := ask(ours, name, wire.StringToType[typ], network)
				if err != nil || err2 != nil {
					t.Errorf("%s %s over %s: %v, %v", name, typ, network, err, err2)
					continue
				}
				q := strings.ToLower(name) + " " + typ
				if a, b := told(a), told(b); a != b && known[q] == "" {
					t.Errorf("%s %s over %s:\nCoreDNS %s\nFairway %s", name, typ, network, a, b)
				} else if a != b {
					differ[q] = true
				}
			}
		}
	}
	return n
}

// told is a reply without what may differ each time: order, the zone's serial number.
func told(m *wire.Msg) string {
	section := func(list []wire.RR) []string {
		var out []string
		for _, rr := range list {
			switch rr := rr.(type) {
			case *wire.OPT:
				continue
			case *wire.SOA:
				rr.Serial = 0
				rr.Hdr.Ttl, rr.Minttl = 0, 0 // denials live 5 s here, on purpose
			}
			out = append(out, strings.Join(strings.Fields(rr.String()), " "))
		}
		slices.Sort(out)
		return out
	}
	return fmt.Sprintf("%s %v aa=%v rd=%v ra=%v ad=%v cd=%v tc=%v edns=%v answer=%q authority=%q additional=%q", wire.RcodeToString[m.Rcode], m.Question,
		m.Authoritative, m.RecursionDesired, m.RecursionAvailable, m.AuthenticatedData, m.CheckingDisabled, m.Truncated, m.IsEdns0() != nil, section(m.Answer), section(m.Ns), section(m.Extra))
}

// differences are the questions answered differently on purpose, each with why.
func differences() map[string]string {
	out := map[string]string{}
	for why, questions := range map[string][]string{
		"a name that exists has no data of other types, and one below which names exist is there (RFC 2308, RFC 8020)": {
			"cluster.local. TXT", "dns-version.cluster.local. A", "dns-version.cluster.local. AAAA", "dns-version.cluster.local. SRV",
			"dns.cluster.local. A", "ns.dns.cluster.local. TXT", "_tcp.db.shop.svc.cluster.local. SRV", "_tcp.web.shop.svc.cluster.local. SRV",
			"_tcp.web.shop.svc.cluster.local. A", "_udp.web.shop.svc.cluster.local. SRV", "96.10.in-addr.arpa. A", "96.10.in-addr.arpa. PTR",
			"10.0.96.10.in-addr.arpa. A", "10.0.96.10.in-addr.arpa. TXT", "10.0.96.10.in-addr.arpa. ANY",
		},
		"a name that does not exist exists for no type": {"gone.cluster.local. SOA", "gone.shop.svc.cluster.local. SOA"},
		"a CNAME stands for every type, also where its target has no data or does not exist (RFC 1034 section 3.6.2)": {
			"out.shop.svc.cluster.local. TXT", "out.shop.svc.cluster.local. ANY", "to-web.shop.svc.cluster.local. AAAA",
			"to-gone.shop.svc.cluster.local. A", "to-digits.shop.svc.cluster.local. A",
		},
		"an ExternalName that can lead nowhere is refused, with a Problem": {
			"to-self.shop.svc.cluster.local. A", "to-self.shop.svc.cluster.local. CNAME", "to-url.shop.svc.cluster.local. A", "to-url.shop.svc.cluster.local. CNAME",
		},
		"the names of ports have SRV records and nothing else, and have underscores": {
			"_http._tcp.web.shop.svc.cluster.local. A", "_sql._tcp.db.shop.svc.cluster.local. A", "http._tcp.web.shop.svc.cluster.local. SRV",
		},
		"SRV records are of Services and their ports": {"db-0.db.shop.svc.cluster.local. SRV", "10-244-1-5.shop.pod.cluster.local. SRV"},
		"there is no name below a Pod's":              {"x.10-244-1-5.shop.pod.cluster.local. A"},
		"a Pod has its second address too":            {"fd00-244-1--5.shop.pod.cluster.local. AAAA"},
		"no API server leaves a Service without cluster addresses": {
			"pending.shop.svc.cluster.local. A", "pending.shop.svc.cluster.local. AAAA", "pending.shop.svc.cluster.local. SRV",
		},
		"CoreDNS looks for the Service by its own address, which is no endpoint here": {"cluster.local. NS"},
	} {
		for _, q := range questions {
			out[q] = why
		}
	}
	return out
}
