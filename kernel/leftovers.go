package kernel

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/google/nftables"
)

// IPTablesLeftovers returns a hand on each variant's tables that hold chains of a service
// proxy, of this program or of kube-proxy, in a family. It loads no kernel table and writes
// no rule to find out.
func IPTablesLeftovers(ctx context.Context, v6 bool, netns int) ([]*IPTables, error) {
	var out []*IPTables
	var errs []error
	for _, v := range []Variant{LegacyVariant, NFTVariant} {
		t := &IPTables{v6: v6, netns: netns, variant: v, tools: toolsOf(v6, v)}
		if _, err := exec.LookPath(t.tools.save); err != nil {
			continue // it never ran here
		}
		if v == LegacyVariant && !t.legacyInUse() {
			continue
		}
		text, err := t.run(ctx, "", t.tools.save)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if strings.Contains(text, "\n:KUBE-") {
			out = append(out, t)
		}
	}
	return out, errors.Join(errs...)
}

// kubeProxyTable is the name of kube-proxy's nftables tables.
const kubeProxyTable = "kube-proxy"

// RemoveKubeProxyTables removes the tables of a kube-proxy in nftables mode and returns
// those there were.
func RemoveKubeProxyTables(netns int) ([]string, error) {
	c, err := nftables.New(nftables.WithNetNSFd(netns))
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	tables, err := c.ListTables()
	if err != nil {
		return nil, fmt.Errorf("nftables: tables: %w", err)
	}
	var removed []string
	for _, t := range tables {
		if t.Name != kubeProxyTable || t.Family != nftables.TableFamilyIPv4 && t.Family != nftables.TableFamilyIPv6 {
			continue
		}
		c.DelTable(t)
		if err := c.Flush(); err != nil {
			return removed, fmt.Errorf("nftables: table %s: %w", t.Name, err)
		}
		family := "ip "
		if t.Family == nftables.TableFamilyIPv6 {
			family = "ip6 "
		}
		removed = append(removed, family+t.Name)
	}
	return removed, nil
}
