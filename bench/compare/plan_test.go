package main

import (
	"strings"
	"testing"

	"fairway/bench/report"
)

func TestChosen(t *testing.T) {
	for list, want := range map[string]string{
		"nftables":                        "fairway/nftables kube-proxy/nftables",
		"kube-proxy/iptables-nft,ebpf":    "kube-proxy/iptables-nft fairway/ebpf",
		"kube-proxy,kube-proxy/nftables":  "kube-proxy/nftables kube-proxy/iptables-legacy kube-proxy/iptables-nft",
		"fairway/userspace,userspace,all": "",
	} {
		got, err := chosen(list)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range got {
			names = append(names, m.String())
		}
		if want != "" && strings.Join(names, " ") != want {
			t.Errorf("-modes %s is %v, want %s", list, names, want)
		}
		if want == "" && len(got) != len(modes()) {
			t.Errorf("-modes %s is %d modes, want all %d", list, len(got), len(modes()))
		}
	}
	if _, err := chosen("ipv5"); err == nil || !strings.Contains(err.Error(), "kube-proxy/nftables") {
		t.Errorf("a wrong mode gives %v; want the list of modes", err)
	}
}

// Programs of one mode are measured one after the other, sizes ascending; nothing is
// measured twice, nor beyond the size where a mode was stopped.
func TestPlan(t *testing.T) {
	list, _ := chosen("nftables")
	work, err := plan(list, "2000,500")
	if err != nil {
		t.Fatal(err)
	}
	if len(work) != 4 || work[0].services != 500 || work[1].services != 500 || work[0].mode.program == work[1].mode.program {
		t.Errorf("the plan is %v", work)
	}
	kp := mode{program: report.KubeProxy, name: "nftables"}
	rows := report.Rows{
		{Program: report.KubeProxy, Mode: "nftables", Services: 500, Measure: report.Complete, Value: 1},
		{Program: report.KubeProxy, Mode: "nftables", Services: 1000, Measure: report.Cold, Value: 1},
		{Program: report.KubeProxy, Mode: "nftables", Services: 2000, Measure: report.Stopped, Value: 60},
	}
	for services, want := range map[int]bool{500: true, 1000: false, 2000: true, 4000: true} {
		if done, why := settled(rows, job{kp, services}); done != want {
			t.Errorf("%d Services: settled %v (%s), want %v", services, done, why, want)
		}
	}
	if done, _ := settled(rows, job{mode{program: report.Fairway, name: "nftables"}, 4000}); done {
		t.Error("one program's limit stops the other")
	}
	if _, err := plan(list, "70000"); err == nil {
		t.Error("more Services than there are addresses are accepted")
	}
}
