package kernel_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/proxy"
	"fairway/test/netlab"
)

func nftablesMode() mode {
	return mode{
		name:     "nftables",
		settings: func(c *proxy.Config) { *c = c.WithMode(proxy.NFTables) },
		open: func(_ *testing.T, node *netlab.Host) loop.Backend {
			return loop.NewNFTables(kernel.NewNFTables(node.NS()))
		},
		list: nftList,
	}
}

// nftList prints the node's whole ruleset as the nft program lists it, elements sorted;
// learned clients are left out.
func nftList(t *testing.T, node *netlab.Host) string {
	t.Helper()
	var out []byte
	err := node.Do(func() (err error) {
		out, err = exec.Command("nft", "list", "ruleset").CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("nft list ruleset: %v %s", err, out)
	}
	var lines []string
	for _, line := range strings.Split(strings.NewReplacer("elements = {", "", " }", "").Replace(string(out)), "\n") {
		for _, part := range strings.Split(line, ",") {
			if part = strings.TrimSpace(part); part != "" && !strings.Contains(part, "expires") {
				lines = append(lines, part)
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	return fmt.Sprintln(strings.Join(lines, "\n"))
}

func TestNFTablesStories(t *testing.T) { runStories(t, nftablesMode()) }
