package kernel_test

import (
	"os/exec"
	"testing"

	"fairway/kernel"
	"fairway/proxy/nftables"
	"fairway/test/story"
)

// TestNFTablesForeign: own transactions are not foreign, anybody else's are, and a
// flush is told apart.
func TestNFTablesForeign(t *testing.T) {
	inNamespace(t)
	k := kernel.NewNFTables(0)
	look := func(what string, wantWrote, wantGone bool) {
		t.Helper()
		wrote, gone, err := k.Foreign(true, false)
		if err != nil || wrote != wantWrote || gone != wantGone {
			t.Errorf("%s: wrote %v gone %v %v, want %v %v", what, wrote, gone, err, wantWrote, wantGone)
		}
	}
	look("first", true, true)
	plan, _ := story.Load(t, "../test/kernel/testdata/mixed.txtar").Plan()
	want := nftables.Compile(nil, plan)
	for range 2 {
		if err := k.Apply(nftables.Diff(nil, want)); err != nil {
			t.Fatal(err)
		}
		look("own", false, false)
	}
	nft := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("nft", args...).CombinedOutput(); err != nil {
			t.Skipf("nft: %v %s", err, out)
		}
	}
	nft("add", "table", "ip", "other")
	look("beside", false, false)
	nft("add", "element", "ip", nftables.TableName, "cluster-ips", "{ 192.0.2.7 }")
	look("an element", true, false)
	look("after", false, false)
	nft("flush", "table", "ip", nftables.TableName)
	look("rules gone", true, false)
	nft("flush", "ruleset")
	look("all gone", true, true)
}
