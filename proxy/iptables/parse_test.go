package iptables

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"fairway/test/random"
)

// TestParseListed: each line as iptables-save 1.8 prints it (both variants) means the
// rule as it is written.
func TestParseListed(t *testing.T) {
	for _, c := range []struct{ listed, written string }{
		{`-d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y`,
			`-m comment --comment "default/kubernetes:https cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y`},
		{`! -s 10.244.0.0/16 -d fd00::1/128 -p udp -m comment --comment "a/b cluster IP" -m udp --dport 53 -j KUBE-MARK-MASQ`,
			`-m comment --comment "a/b cluster IP" -m udp -p udp -d fd00::1 --dport 53 ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`},
		{`-m comment --comment "a/b -> 10.0.0.1:80" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-X`,
			`-m comment --comment "a/b -> 10.0.0.1:80" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-X`},
		{`-m comment --comment "a/b -> 10.0.0.1:80" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j KUBE-SEP-X`,
			`-m comment --comment "a/b -> 10.0.0.1:80" -m recent --name KUBE-SEP-X --rcheck --seconds 10800 --reap -j KUBE-SEP-X`},
		{`-p tcp -m comment --comment "a/b:c" -m recent --set --name KUBE-SEP-X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -m tcp -j DNAT --to-destination [fd00::1]:80`,
			`-m comment --comment a/b:c -m recent --name KUBE-SEP-X --set -m tcp -p tcp -j DNAT --to-destination [fd00::1]:80`},
		{`-j MARK --set-xmark 0x4000/0x4000`, `-j MARK --or-mark 0x4000`},
		{`-j MARK --set-xmark 0x4000/0x0`, `-j MARK --xor-mark 0x4000`},
		{`-m mark ! --mark 0x4000/0x4000 -j RETURN`, `-m mark ! --mark 0x4000/0x4000 -j RETURN`},
		{`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
			`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`},
		{`! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
			`-m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`},
		{`-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
			`-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{`-p udp -m comment --comment "a/b has no endpoints" -m addrtype --dst-type LOCAL -m udp --dport 30053 -j REJECT --reject-with icmp-port-unreachable`,
			`-m comment --comment "a/b has no endpoints" -m addrtype --dst-type LOCAL -m udp -p udp --dport 30053 -j REJECT`},
		{`! -i cali+ -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ`, `-m addrtype --src-type LOCAL ! -i cali+ -j KUBE-MARK-MASQ`},
		{`-d 127.0.0.0/8 -p tcp -m comment --comment "a/b" -m tcp --dport 30001 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT-X`,
			`-m comment --comment a/b -m tcp -p tcp -d 127.0.0.0/8 --dport 30001 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT-X`},
		{`-m comment --comment "other traffic to a/b will be dropped by KUBE-PROXY-FIREWALL"`,
			`-m comment --comment "other traffic to a/b will be dropped by KUBE-PROXY-FIREWALL"`},
	} {
		got, want := ParseRule(c.listed), ParseRule(c.written)
		if got != want || got.Raw != "" {
			t.Errorf("listed  %s\nmeans   %+v\nwritten %s\nmeans   %+v", c.listed, got, c.written, want)
		}
		if got.Text() != c.written {
			t.Errorf("got  %s\nwant %s", got.Text(), c.written)
		}
	}
}

// TestParseForeign: what this package never writes stays as it is and equals nothing.
func TestParseForeign(t *testing.T) {
	for _, text := range []string{
		`-p tcp -m multiport --dports 80,443 -j ACCEPT`, `-s 10.0.0.0/255.0.255.0 -j DROP`, `! -p tcp -j DROP`,
		`-m comment --comment "it \"was" quoted -j X`, `-j REJECT --reject-with tcp-reset`, `-j MASQUERADE`,
		`-j MARK --set-xmark 0x1/0xffffffff`, `-m statistic --mode nth --every 2 --packet 1 -j X`, `-j`, `!`, `-m comment --comment "open`,
		`-m recent --update --seconds 60 --name X --mask 255.255.255.255 --rsource -j X`, `-i eth0 ! -j X`, `-j X -j Y`,
	} {
		if r := ParseRule(text); r.Raw != text {
			t.Errorf("%s read as %+v", text, r)
		}
	}
}

func TestProbabilitySurvivesTheKernel(t *testing.T) {
	for n := uint32(2); n <= 5000; n++ {
		text := Rule{OneIn: n}.Text()
		if got := ParseRule(text); got.OneIn != n {
			t.Fatalf("1/%d written as %q reads as 1/%d", n, text, got.OneIn)
		}
	}
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 3))
	plan := planFor(nil, random.Cluster(r), randomSettings(r))
	packets := random.Packets(r, plan, 20)
	f.Add(Compile(nil, plan, Options{}).Text(false))
	f.Add("*nat\n:PREROUTING ACCEPT [0:0]\n[3:180] -A PREROUTING -j KUBE-SERVICES\nCOMMIT\n# Completed\n")
	f.Add("*nat\n-A X -m comment --comment \"a\\\"b\" ! -s 1.2.3.4/5 -j MARK --set-xmark 0x1/0x1\n")
	f.Add(":X\n")
	f.Fuzz(func(t *testing.T, save string) {
		p, err := Parse(save, false)
		if err != nil {
			return
		}
		again, err := Parse(p.Text(false), false)
		if err != nil {
			t.Fatalf("%v in what was printed:\n%s", err, p.Text(false))
		}
		if !reflect.DeepEqual(sorted(p, false), sorted(again, false)) {
			t.Fatalf("printed, read and printed again differs:\n%s\n%s", p.Text(false), again.Text(false))
		}
		Diff(p, &Program{}, false)
		for _, pkt := range packets {
			p.Trace(pkt, localOf(plan.Config))
		}
	})
}
