package kernel_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/model"
	"fairway/proxy"
	"fairway/proxy/iptables"
	"fairway/test/story"
)

// hands finds the commands of both families and variants in a new namespace.
func eachHand(t *testing.T, test func(t *testing.T, k *kernel.IPTables, v6 bool)) {
	for _, variant := range []kernel.Variant{kernel.NFTVariant, kernel.LegacyVariant} {
		for _, v6 := range []bool{false, true} {
			name := string(variant) + "/IPv4"
			if v6 {
				name = string(variant) + "/IPv6"
			}
			t.Run(name, func(t *testing.T) {
				inNamespace(t)
				k, err := kernel.FindIPTables(context.Background(), v6, 0, variant)
				if errors.Is(err, kernel.ErrNoIPTables) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				test(t, k, v6)
			})
		}
	}
}

// TestIPTablesRoundTrip: what is written is what is listed, for every story; written
// twice it is the same; and Removal leaves what was there before.
func TestIPTablesRoundTrip(t *testing.T) {
	ctx := context.Background()
	stories := append(story.Glob(t, "../proxy/iptables/testdata/*.txtar"), story.Glob(t, "../proxy/testdata/*.txtar")...)
	eachHand(t, func(t *testing.T, k *kernel.IPTables, v6 bool) {
		foreign := "*filter\n:MINE - [0:0]\n-A FORWARD -p tcp -m tcp --dport 9 -j MINE\nCOMMIT\n"
		if err := k.Restore(ctx, foreign); err != nil {
			t.Fatal(err)
		}
		for _, s := range stories {
			s.Config = s.Config.WithMode(proxy.IPTables)
			plan, _ := s.Plan()
			want := iptables.Compile(nil, plan, iptables.Options{})
			if err := k.Test(ctx, want.Text(v6)); err != nil {
				t.Fatalf("%s: %v", s.Path, err)
			}
			once := load(t, k, want, v6)
			if twice := load(t, k, want, v6); once.Text(v6) != twice.Text(v6) {
				t.Errorf("%s: written twice, listed differently\n%s\n%s", s.Path, once.Text(v6), twice.Text(v6))
			}
			// All chains written again over themselves.
			if err := k.Restore(ctx, iptables.Diff(nil, want, v6).Text()); err != nil {
				t.Fatalf("%s: %v", s.Path, err)
			}
			if again, err := k.List(ctx); err != nil || len(iptables.Drift(again, want, v6)) > 0 {
				t.Errorf("%s: %v", s.Path, err)
			}
		}
		listed, err := k.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Restore(ctx, listed.Removal(v6)); err != nil {
			t.Fatal(err)
		}
		listed, _ = k.List(ctx)
		if text := listed.Text(v6); strings.Contains(text, "KUBE-") || !strings.Contains(text, "-j MINE") {
			t.Errorf("after removal:\n%s", text)
		}
	})
}

func load(t *testing.T, k *kernel.IPTables, want *iptables.Program, v6 bool) *iptables.Program {
	t.Helper()
	ctx := context.Background()
	have, err := k.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for input := range iptables.Diff(have, want, v6).Batches(2, model.Name{}) {
		if err := k.Restore(ctx, input); err != nil {
			t.Fatalf("%v\n%s", err, input)
		}
	}
	listed, err := k.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if lines := iptables.Drift(listed, want, v6); len(lines) > 0 {
		t.Fatalf("the kernel lists something else:\n%s", strings.Join(lines, "\n"))
	}
	return listed
}

func TestIPTablesCanary(t *testing.T) {
	ctx := context.Background()
	eachHand(t, func(t *testing.T, k *kernel.IPTables, v6 bool) {
		if ok, err := k.Intact(ctx); ok || err != nil {
			t.Errorf("before any write: %v %v", ok, err)
		}
		plan, _ := story.Load(t, "../proxy/iptables/testdata/base.txtar").Plan()
		load(t, k, iptables.Compile(nil, plan, iptables.Options{}), v6)
		if ok, err := k.Intact(ctx); !ok || err != nil {
			t.Errorf("after the write: %v %v", ok, err)
		}
		if err := k.Restore(ctx, "*nat\n-F PREROUTING\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		if ok, err := k.Intact(ctx); ok || err != nil {
			t.Errorf("after the jumps went: %v %v", ok, err)
		}
		if err := k.Restore(ctx, "*nat\n-F\n-X "+iptables.Canary+"\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		if ok, err := k.Intact(ctx); ok || err != nil {
			t.Errorf("after a flush: %v %v", ok, err)
		}
	})
}

// TestIPTablesErrorNamesTheLine: the line the kernel refuses stands in the error.
func TestIPTablesErrorNamesTheLine(t *testing.T) {
	eachHand(t, func(t *testing.T, k *kernel.IPTables, v6 bool) {
		err := k.Restore(context.Background(), "*nat\n:A - [0:0]\n-A A -j NOWHERE\nCOMMIT\n")
		if err == nil || !strings.Contains(err.Error(), "NOWHERE") {
			t.Errorf("got %v", err)
		}
	})
}

// TestIPTablesVariant: rules of Kubernetes in either variant's tables decide.
func TestIPTablesVariant(t *testing.T) {
	ctx := context.Background()
	for _, variant := range []kernel.Variant{kernel.NFTVariant, kernel.LegacyVariant} {
		t.Run(string(variant), func(t *testing.T) {
			inNamespace(t)
			tool := "iptables-" + string(variant)
			if _, err := exec.LookPath(tool); err != nil {
				t.Skip(err)
			}
			if out, err := exec.Command(tool, "-t", "mangle", "-N", iptables.KubeletCanary).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			k, err := kernel.FindIPTables(ctx, false, 0, kernel.AnyVariant)
			if err != nil {
				t.Fatal(err)
			}
			if k.Variant() != variant {
				t.Errorf("found %s, the kubelet uses %s", k.Variant(), variant)
			}
		})
	}
}

func TestIPTablesMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := kernel.FindIPTables(context.Background(), false, 0, kernel.AnyVariant)
	if !errors.Is(err, kernel.ErrNoIPTables) || !strings.Contains(err.Error(), "apt-get install iptables") {
		t.Errorf("got %v", err)
	}
}

// TestIPTablesNamespace: with a descriptor the commands run there, not here.
func TestIPTablesNamespace(t *testing.T) {
	inNamespace(t)
	there := otherNamespace(t)
	ctx := context.Background()
	k, err := kernel.FindIPTables(ctx, false, there, kernel.NFTVariant)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Restore(ctx, "*nat\n:THERE - [0:0]\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if err := k.RouteLocalnet(); err != nil {
		t.Error(err)
	}
	if listed, err := k.List(ctx); err != nil || !strings.Contains(listed.Text(false), ":THERE") {
		t.Error(err)
	}
	out, err := exec.Command("iptables-nft-save").CombinedOutput()
	if err != nil || strings.Contains(string(out), "THERE") {
		t.Errorf("%v\n%s", err, out)
	}
}
