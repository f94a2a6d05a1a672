package kernel_test

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/proxy/nftables"
	"fairway/test/story"

	"github.com/vishvananda/netns"
)

// inNamespace gives the test a network namespace of its own and stays in it: its thread
// ends with the test.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("FAIRWAY_REQUIRE_KERNEL") == "1" {
			t.Fatal("FAIRWAY_REQUIRE_KERNEL=1, but not root")
		}
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	t.Cleanup(func() { ns.Close() })
}

// TestNFTablesRoundTrip: what is written is what is read, rule by rule and element by
// element, for every story; and nothing is left after a Change to nothing.
func TestNFTablesRoundTrip(t *testing.T) {
	inNamespace(t)
	k := kernel.NewNFTables(0)
	stories := append(story.Glob(t, "../proxy/nftables/testdata/*.txtar"), story.Glob(t, "../proxy/testdata/*.txtar")...)
	for _, s := range stories {
		plan, _ := s.Plan()
		want := nftables.Compile(nil, plan)
		have, err := k.List()
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Apply(nftables.Diff(have, want)); err != nil {
			t.Fatalf("%s: %v\n%s", s.Path, err, nftables.Diff(have, want).Text())
		}
		got, err := k.List()
		if err != nil {
			t.Fatal(err)
		}
		if d := nftables.Diff(got, want); !d.Empty() {
			t.Errorf("%s: the kernel holds something else:\n%s", s.Path, d.Text())
		}
	}
	have, _ := k.List()
	if err := k.Apply(nftables.Diff(have, nil)); err != nil {
		t.Fatal(err)
	}
	if out := listRuleset(t); out != "" {
		t.Errorf("left behind:\n%s", out)
	}
}

func listRuleset(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Skipf("the nft program cannot list: %v %s", err, out)
	}
	return string(out)
}

// TestNFTablesText: the printed script and the netlink way make the same tables, as nft
// itself lists them.
func TestNFTablesText(t *testing.T) {
	inNamespace(t)
	k := kernel.NewNFTables(0)
	for _, s := range append(story.Glob(t, "../proxy/nftables/testdata/*.txtar"), story.Glob(t, "../proxy/testdata/*.txtar")...) {
		plan, _ := s.Plan()
		p := nftables.Compile(nil, plan)
		if err := k.Apply(nftables.Diff(nil, p)); err != nil {
			t.Fatal(err)
		}
		byNetlink := listRuleset(t)
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(p.Text())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: nft -f: %v %s\n%s", s.Path, err, out, p.Text())
		}
		if byText := listRuleset(t); sortedLines(byText) != sortedLines(byNetlink) {
			t.Errorf("%s\n--- by netlink\n%s--- by text\n%s", s.Path, byNetlink, byText)
		}
		if err := k.Cleanup(); err != nil {
			t.Fatal(err)
		}
	}
}

// sortedLines forgets the order of elements, which is the hash table's.
func sortedLines(s string) string {
	words := strings.Fields(strings.NewReplacer("elements = {", "", "}", "", ",", "\n").Replace(s))
	slices.Sort(words)
	return strings.Join(words, "\n")
}

// TestNFTablesProbe: this kernel has everything, and asking leaves nothing behind.
func TestNFTablesProbe(t *testing.T) {
	inNamespace(t)
	k := kernel.NewNFTables(0)
	for _, v6 := range []bool{false, true} {
		for _, m := range k.Probe(v6) {
			t.Errorf("v6 %v: %v", v6, m)
		}
	}
	if left := listRuleset(t); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// TestNFTablesProbeSays: without the right to, the first feature is named.
func TestNFTablesProbeSays(t *testing.T) {
	missing := kernel.NewNFTables(-1).Probe(false)
	if len(missing) != 1 || missing[0].Feature == "" || kernel.ProbeError(false, missing) == nil {
		t.Fatalf("probe of no namespace: %v", missing)
	}
}
