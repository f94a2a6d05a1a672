package dns_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairway/dns"
	"fairway/test/story"
)

// kubeadm is the configuration kubeadm installs (v1.37).
const kubeadm = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
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

func TestKubeadmCorefile(t *testing.T) {
	cfg, fwd, problems := dns.ParseCorefile(kubeadm)
	if len(problems) > 0 {
		t.Errorf("problems: %s", story.Problems(problems))
	}
	if want := dns.DefaultConfig(); !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if want := dns.DefaultForwardConfig(); !reflect.DeepEqual(fwd, want) {
		t.Errorf("got  %+v\nwant %+v", fwd, want)
	}
}

func TestStubDomains(t *testing.T) {
	_, fwd, problems := dns.ParseCorefile(kubeadm + `
consul.local:53 { # a stub domain
    errors
    cache 10
    forward . 10.150.0.1 [2001:db8::1]:5353 {
        policy sequential
        prefer_udp
        except private.consul.local
        max_fails 3
        health_check 2s
    }
}
`)
	if len(problems) > 0 {
		t.Errorf("problems: %s", story.Problems(problems))
	}
	r := fwd.Routes[len(fwd.Routes)-1]
	if r.Zone != "consul.local." || len(r.Upstreams) != 2 || r.Policy != dns.Sequential || r.MaxFails != 3 ||
		r.HealthCheck != 2*time.Second || r.Cache.Success.MaxTTL != 10*time.Second || r.Except[0] != "private.consul.local." {
		t.Errorf("got %+v", r)
	}
}

// TestImports: what is in other files, and in blocks that are not served, has no effect
// and is said; the rest stands.
func TestImports(t *testing.T) {
	cfg, fwd, problems := dns.ParseCorefile(`import custom/*.override
(snip) {
    hosts {
        192.0.2.1 snip.example
    }
}
tls://. {
    kubernetes wrong.local
    hosts {
        192.0.2.1 tls.example
    }
}
.:53 {
    kubernetes cluster.local
    import custom/*.inner
    forward . 192.0.2.53
}
import custom/*.server`)
	got := story.Problems(problems)
	for _, want := range []string{"line 1: import custom/*.override", "line 2: (snip)", "line 7: tls://.", "line 15: import custom/*.inner", "line 18: import custom/*.server"} {
		if !strings.Contains(got, want) {
			t.Errorf("no problem says %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, dns.InvalidCorefile) || cfg.Domain != "cluster.local" || len(fwd.Hosts) != 0 || len(fwd.Routes) != 1 {
		t.Errorf("%s\n%+v %+v", got, cfg, fwd)
	}
}

// TestHostsOfBlocks: hosts answer for their own server block, and for more specific ones
// not at all.
func TestHostsOfBlocks(t *testing.T) {
	_, fwd, problems := dns.ParseCorefile(`.:53 {
    kubernetes cluster.local
    hosts {
        192.0.2.1 box.example
    }
    forward . 192.0.2.53
}
consul.local:53 {
    forward . 192.0.2.54
}`)
	if len(problems) > 0 {
		t.Fatal(story.Problems(problems))
	}
	h := dns.NewHosts(fwd.Hosts[0], "")
	if fwd.Routes[1].Block != "consul.local." || h.Asked("a.consul.local", fwd.Routes[1].Block) || !h.Asked("box.example", ".") {
		t.Errorf("%+v", fwd)
	}
}

func TestHostsFile(t *testing.T) {
	_, fwd, problems := dns.ParseCorefile(`.:53 {
    kubernetes cluster.local
    hosts /nowhere example.org {
        192.0.2.1 Example.org www.example.org # two names
        2001:db8::1 example.org
        192.0.2.9 web.default.svc.cluster.local
        ttl 60
        reload 5s
        fallthrough sub.example.org
    }
}`)
	if got := story.Problems(problems); !strings.Contains(got, "line 6: 192.0.2.9 web.default") || len(problems) != 1 {
		t.Errorf("problems: %s", got)
	}
	h := dns.NewHosts(fwd.Hosts[0], "192.0.2.2\tother.example.org\n::ffff:192.0.2.3 other.example.org\nnonsense example.org\n192.0.2.4 ."+strings.Repeat("a", 64)+"\n")
	for q, want := range map[dns.Question]string{
		{Name: "WWW.example.org", Type: dns.TypeA}:           "NOERROR [WWW.example.org 60 IN A 192.0.2.1]",
		{Name: "example.org.", Type: dns.TypeAAAA}:           "NOERROR [example.org. 60 IN AAAA 2001:db8::1]",
		{Name: "www.example.org.", Type: dns.TypeAAAA}:       "NOERROR []",
		{Name: "other.example.org.", Type: dns.TypeA}:        "NOERROR [other.example.org. 60 IN A 192.0.2.2 other.example.org. 60 IN A 192.0.2.3]",
		{Name: "none.example.org.", Type: dns.TypeA}:         "SERVFAIL []",
		{Name: "none.sub.example.org.", Type: dns.TypeA}:     "not ours",
		{Name: "example.com.", Type: dns.TypeA}:              "not ours",
		{Name: "1.2.0.192.in-addr.arpa.", Type: dns.TypePTR}: "not ours",
	} {
		r := h.Answer(q)
		got := fmt.Sprint(r.Rcode, " ", r.Answer)
		if r.NotOurs {
			got = "not ours"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", q, got, want)
		}
	}
	var blocked strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&blocked, "0.0.0.0 bad%d.example\n", i)
	}
	list := dns.NewHosts(dns.HostsConfig{}, blocked.String()+"192.0.2.1 odd\\\n")
	if r := list.Answer(dns.Question{Name: "bad19999.example", Type: dns.TypeA}); len(r.Answer) != 1 {
		t.Errorf("the last of a long list: %v", r)
	}
	if r := list.Answer(dns.Question{Name: "0.0.0.0.in-addr.arpa.", Type: dns.TypePTR}); len(r.Answer) == 0 || len(r.Answer) > 200 {
		t.Errorf("%d names of one address", len(r.Answer))
	}
	if r := list.Answer(dns.Question{Name: "1.2.0.192.in-addr.arpa.", Type: dns.TypePTR}); len(r.Answer) != 0 {
		t.Errorf("a name that cannot be written: %v", r)
	}
	all := fwd.Hosts[0]
	all.Zones = nil
	r := dns.NewHosts(all, "").Answer(dns.Question{Name: "1.2.0.192.in-addr.arpa.", Type: dns.TypePTR})
	if len(r.Answer) != 2 || r.Answer[0].Target != "example.org." {
		t.Errorf("PTR %v", r.Answer)
	}
}

// FuzzHosts: whatever a file says, answers fit into messages.
func FuzzHosts(f *testing.F) {
	f.Add("192.0.2.1 a b.example # c\n::1 localhost\n", "a")
	f.Add("1.2.3.4 "+strings.Repeat("a.", 200)+"\n\x00 x\nfe80::1%eth0 link\n", "link")
	f.Fuzz(func(t *testing.T, text, name string) {
		r := dns.NewHosts(dns.HostsConfig{}, text).Answer(dns.Question{Name: name, Type: dns.TypeA})
		for _, rec := range r.Answer {
			if !rec.Addr.Is4() {
				t.Errorf("%v", rec)
			}
		}
	})
}

func TestCacheOptions(t *testing.T) {
	_, fwd, problems := dns.ParseCorefile(`.:53 {
    kubernetes cluster.local
    forward . 10.0.0.1 10.0.0.2 {
        failover SERVFAIL refused
    }
    cache 60 example.com Example.net {
        prefetch 3 2m 20%
        serve_stale 30m verify
        keepttl
        disable denial example.net cluster.local
    }
}`)
	if len(problems) > 0 {
		t.Errorf("problems: %s", story.Problems(problems))
	}
	r := fwd.Routes[0]
	if !slices.Equal(r.Failover, []dns.Rcode{dns.ServFail, dns.Refused}) {
		t.Errorf("failover %v", r.Failover)
	}
	c := r.Cache
	if c.Prefetch != 3 || c.PrefetchGap != 2*time.Minute || c.PrefetchShare != 20 || c.ServeStale != 30*time.Minute || c.StaleAtOnce || !c.KeepTTL {
		t.Errorf("got %+v", c)
	}
	for name, want := range map[string][2]bool{"a.example.com.": {true, true}, "example.net.": {true, false}, "example.org.": {}} {
		if got := [2]bool{c.Keeps(name, false), c.Keeps(name, true)}; got != want {
			t.Errorf("%s is kept %v, want %v", name, got, want)
		}
	}
}

func TestCorefileProblems(t *testing.T) {
	_, _, problems := dns.ParseCorefile(`
(snip) { errors }
tls://. { forward . 1.1.1.1 }
.:1053 {
    log
    rewrite name foo.example.com foo.default.svc.cluster.local
    hosts {
      10.0.0.1 example.org
    }
    kubernetes cluster.local other.local {
        pods sometimes
        ttl 99999
        multicluster clusterset.local
        kubeconfig /etc/kube.conf
    }
    forward . tls://9.9.9.9 1.1.1.1 {
        tls_servername dns.quad9.net
        max_concurrent lots
    }
    cache 30 {
        prefetch 10 1m 200%
        serve_stale 1h sometimes
    }
    autopath /etc/resolv.conf
}
unclosed {
`)
	got := story.Problems(problems)
	for _, want := range []string{
		"line 2: (snip): only names of zones", "line 3: tls://.: only plain DNS", "line 4: .:1053: the listening port", "line 5: log: this directive",
		"line 6: rewrite name foo.example.com", `line 11: pods: "sometimes"`, `line 12: ttl: "99999"`,
		"line 10: kubernetes other.local: one cluster domain", "line 13: multicluster clusterset.local", "line 14: kubeconfig /etc/kube.conf",
		"line 16: forward tls://9.9.9.9", "line 17: tls_servername", `line 18: max_concurrent: "lots"`, `line 21: prefetch: "200%"`, `line 22: serve_stale: "sometimes"`,
		"line 24: autopath /etc/resolv.conf", "line 26: the block is never closed",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no problem says %q in\n%s", want, got)
		}
	}
}

func FuzzParseCorefile(f *testing.F) {
	for _, s := range []string{kubeadm, "", "{", "}", ". {", ". { kubernetes { pods", ". { forward . }", `. { cache "3`, "a b, c:53 { errors }\n",
		". {\n kubernetes . {\n ttl -1\n }\n}", ". { { { { { { { { { {", "`", ". {\n forward . [::1]:53 {\n policy x\n }\n}", "x://:// {}", ":: {}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, fwd, _ := dns.ParseCorefile(text)
		if cfg.Domain == "" || cfg.TTL > 3600 {
			t.Errorf("%q gives %+v", text, cfg)
		}
		for _, r := range fwd.Routes {
			if r.Zone == "" || r.MaxFails < 0 {
				t.Errorf("%q gives %+v", text, r)
			}
		}
	})
}
