package kernel_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairway/kernel"
	"fairway/loop"
	"fairway/proxy"
	"fairway/test/netlab"
	"fairway/test/story"
)

func iptablesMode(variant kernel.Variant) mode {
	return mode{
		name: "iptables-" + string(variant),
		settings: func(c *proxy.Config) {
			c.LocalhostNodePorts, c.ServiceCIDRs = true, nil
			*c = c.WithMode(proxy.IPTables)
		},
		open: func(t *testing.T, node *netlab.Host) loop.Backend {
			t.Helper()
			b, problems, err := loop.OpenIPTables(context.Background(), node.NS(), variant, "node1")
			if err != nil || len(problems) > 0 {
				t.Fatalf("open: %v %v", err, problems)
			}
			return b
		},
		list: func(t *testing.T, node *netlab.Host) string { return iptablesList(t, node, variant) },
	}
}

// iptablesList is every line of both families' listings that speaks of our chains, in
// order but for the chains' names, whose order is the hash table's.
func iptablesList(t *testing.T, node *netlab.Host, variant kernel.Variant) string {
	t.Helper()
	var lines []string
	for _, tool := range []string{"iptables", "ip6tables"} {
		var out []byte
		err := node.Do(func() (err error) {
			out, err = exec.Command(tool + "-" + string(variant) + "-save").Output()
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "KUBE-") {
				lines = append(lines, tool+" "+line)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	return strings.Join(lines, "\n")
}

// chainOf is the tool and chain a line is about.
func chainOf(line string) string {
	f := strings.Fields(line)
	if strings.HasPrefix(f[1], ":") {
		return f[0] + " " + f[1]
	}
	return f[0] + " " + f[2]
}

func TestIPTablesStories(t *testing.T) { runStories(t, iptablesMode(kernel.NFTVariant)) }

func TestIPTablesLegacyStories(t *testing.T) { runStories(t, iptablesMode(kernel.LegacyVariant)) }

// TestIPTablesOwnStories runs the stories that are of this mode alone.
func TestIPTablesOwnStories(t *testing.T) {
	eachVariant(t, func(t *testing.T, m mode, _ string) {
		for _, s := range story.Glob(t, "../../proxy/iptables/testdata/own/*.txtar") {
			t.Run(s.Path, func(t *testing.T) { runStory(t, m, s) })
		}
	})
}

// TestIPTablesOneFamily: where only one family's commands work, that family is served
// and the other is a Problem that says what to do.
func TestIPTablesOneFamily(t *testing.T) {
	requireKernel(t)
	dir := t.TempDir()
	for _, tool := range []string{"iptables-nft", "iptables-nft-save", "iptables-nft-restore"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	s := story.Load(t, "testdata/mixed.txtar")
	plan, _ := s.Plan()
	lab := newLab(t, plan, s.Packets)
	b, problems, err := loop.OpenIPTables(context.Background(), lab.Node.NS(), kernel.NFTVariant, "node1")
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Message, "apt-get install iptables") {
		t.Fatalf("%v %v", problems, err)
	}
	apply(t, b, plan)
	if _, _, err := loop.OpenIPTables(context.Background(), lab.Node.NS(), kernel.LegacyVariant, "node1"); !errors.Is(err, kernel.ErrNoIPTables) {
		t.Errorf("without any command: %v", err)
	}
}
