package kernel_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"fairway/loop"
	"fairway/packet"
	"fairway/test/netlab"
)

// TestIPVSDrift: what somebody changes behind our back is found by the audit, said in
// the tools' words, and put right; virtual services of others are left alone.
func TestIPVSDrift(t *testing.T) {
	requireIPVS(t)
	m := ipvsMode()
	s, plan, lab := mixed(t, m)
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	onNode(t, lab.Node, "ipvsadm -A -t 172.30.0.11:6443 -s rr")
	good := m.list(t, lab.Node)
	if lines, err := b.Audit(context.Background()); err != nil || len(lines) > 0 {
		t.Fatalf("audit of an untouched kernel: %v %q", err, lines)
	}
	for damage, says := range map[string]string{
		"ipvsadm -D -u 10.96.0.10:53":                          "ipvsadm -A -u 10.96.0.10:53",
		"ipvsadm -d -t 10.96.0.10:53 -r 10.244.1.5:53":         "ipvsadm -a -t 10.96.0.10:53 -r 10.244.1.5:53",
		"ipvsadm -e -t 10.96.0.10:53 -r 10.244.1.5:53 -m -w 7": "ipvsadm -e -t 10.96.0.10:53 -r 10.244.1.5:53 -m -w 1",
		"ipvsadm -a -u 10.96.0.10:53 -r 10.244.9.9:53 -m":      "ipvsadm -d -u 10.96.0.10:53 -r 10.244.9.9:53",
		"ipvsadm -E -t 10.96.0.10:53 -s lc":                    "ipvsadm -E -t 10.96.0.10:53 -s rr",
		"ipvsadm -A -t 10.96.0.10:99 -s rr":                    "ipvsadm -D -t 10.96.0.10:99",
		"ip addr del 10.96.0.40/32 dev kube-ipvs0":             "ip addr add 10.96.0.40/32",
		"ip addr add 10.96.7.7/32 dev kube-ipvs0 scope host":   "ip addr del 10.96.7.7/32",
		"ip link del kube-ipvs0":                               "ip addr add 10.96.0.10/32",
		"ipset del KUBE-CLUSTER-IP 10.96.0.10,udp:53":          "ipset add KUBE-CLUSTER-IP 10.96.0.10,udp:53",
		"ipset add KUBE-LOOP-BACK 10.9.9.9,tcp:1,10.9.9.9":     "ipset del KUBE-LOOP-BACK 10.9.9.9,tcp:1,10.9.9.9",
		"ipset flush":                                                   "ipset add KUBE-IPVS-IPS 10.96.0.10",
		"iptables -t nat -F KUBE-IPVS-SERVICES":                         "iptables -A KUBE-IPVS-SERVICES",
		"iptables -t mangle -D KUBE-IPVS-ANY-ENDPOINT 1":                "iptables -A KUBE-IPVS-ANY-ENDPOINT",
		"iptables -t filter -F INPUT":                                   "iptables -I INPUT",
		"iptables -t nat -I KUBE-IPVS-POSTROUTING -s 1.2.3.4 -j RETURN": "iptables :KUBE-IPVS-POSTROUTING",
	} {
		onNode(t, lab.Node, damage)
		lines, err := b.Audit(context.Background())
		if err != nil || !strings.Contains(strings.Join(lines, "\n"), says) {
			t.Fatalf("%s: audit: %v, want %q in\n%s", damage, err, says, strings.Join(lines, "\n"))
		}
		if now := m.list(t, lab.Node); now != good {
			t.Fatalf("%s: not repaired by %s\n--- now\n%s--- before\n%s", damage, strings.Join(lines, "\n"), now, good)
		}
	}
	sendAll(t, lab, plan, s.Packets[:2])
	if err := b.Cleanup(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := m.list(t, lab.Node); left != "ipvsadm -A -t 172.30.0.11:6443 -s rr" {
		t.Errorf("left after cleanup, besides what is somebody else's:\n%s", left)
	}
}

// TestIPVSWatch: what is flushed whole is noticed between audits.
func TestIPVSWatch(t *testing.T) {
	requireIPVS(t)
	m := ipvsMode()
	_, plan, lab := mixed(t, m)
	b := m.open(t, lab.Node)
	apply(t, b, plan)
	good := m.list(t, lab.Node)
	for _, flush := range []string{"ipvsadm -C", "ip addr flush dev kube-ipvs0", "iptables -t nat -F"} {
		onNode(t, lab.Node, flush)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		repaired := make(chan []string, 1)
		done := make(chan bool)
		go func() {
			defer close(done)
			b.(*loop.IPVS).Watch(ctx, 50*time.Millisecond, func(lines []string, err error) {
				if err != nil {
					t.Error(err)
				}
				select {
				case repaired <- lines:
				default:
				}
				cancel()
			})
		}()
		<-done
		cancel()
		select {
		case lines := <-repaired:
			if len(lines) == 0 || m.list(t, lab.Node) != good {
				t.Errorf("%s: repaired %q, listed now:\n%s", flush, lines, m.list(t, lab.Node))
			}
		default:
			t.Errorf("%s went unnoticed", flush)
		}
	}
}

// TestIPVSNoGap: while endpoints change and the backend is replaced, no connect fails. A
// datagram may: IPVS drops the first one of a client's port it last sent to an endpoint
// that is gone since (expire_nodest_conn), and only what comes after it goes elsewhere.
func TestIPVSNoGap(t *testing.T) {
	requireIPVS(t)
	noGap(t, ipvsMode(), 12, 5, 1)
}

// TestIPVSSwitch: from this mode to another and back, new connects go through all the
// time, UDP clients that keep their port are served on, and in the end nothing of the old
// mode is left. One datagram may be lost as IPVS leaves: when it gives a client's port of
// the last minutes up it makes conntrack forget the flow that has the port now.
func TestIPVSSwitch(t *testing.T) {
	requireIPVS(t)
	s, _, lab := mixed(t, ipvsMode())
	here := ipvsMode()
	for _, other := range []mode{iptablesMode("nft"), nftablesMode(), iptablesMode("legacy")} {
		t.Run(other.name, func(t *testing.T) {
			var old loop.Backend
			var talk *netlab.Talkers
			for i, m := range []mode{here, other, here} {
				cfg := s.Config
				m.settings(&cfg)
				again := *s
				again.Config = cfg
				plan, _ := again.Plan()
				lost := 0
				stop := connecting(t, lab, s.Packets[:2], func(p packet.Packet, o netlab.Observation) bool {
					if i > 0 && (p.Proto != packet.UDP || o.Refused) {
						return false
					}
					lost++
					return i == 0 || lost == 1
				})
				b := m.open(t, lab.Node)
				apply(t, b, plan)
				if talk == nil { // before, there would be nobody for it yet
					talk = lab.Host(s.Packets[1].Src).Talk(t, 6, s.Packets[1].Dst.String())
				}
				talk.Heard()
				if old != nil {
					if err := old.Cleanup(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(200 * time.Millisecond)
				t.Logf("%d connects during the switch to %s", stop(), m.name)
				sendAll(t, lab, plan, s.Packets)
				for at, who := range talk.Heard() {
					if who == "" {
						t.Errorf("after the switch to %s UDP client %d hears nobody", m.name, at)
					}
				}
				old = b
			}
			if left := other.list(t, lab.Node); strings.Contains(left, "KUBE-SVC") || strings.Contains(left, "table ip fairway") {
				t.Errorf("of %s is left:\n%s", other.name, left)
			}
			if err := old.Cleanup(context.Background()); err != nil {
				t.Fatal(err)
			}
			if left := here.list(t, lab.Node); left != "" {
				t.Errorf("left in the end:\n%s", left)
			}
		})
	}
}
