package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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
		if v == LegacyVariant && !t.legacyTables() {
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

// legacyTables tells whether the kernel has any table of the older kind in this family.
func (t *IPTables) legacyTables() bool {
	path := "/proc/thread-self/net/ip_tables_names"
	if t.v6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	var names []byte
	err := inNetNS(t.netns, func() (err error) {
		names, err = os.ReadFile(path)
		return err
	})
	return err == nil && len(names) > 0
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
		if err := deleteTable(c, t); err != nil {
			return removed, fmt.Errorf("nftables: %w", err)
		}
		family := "ip "
		if t.Family == nftables.TableFamilyIPv6 {
			family = "ip6 "
		}
		removed = append(removed, family+t.Name)
	}
	return removed, nil
}

// iptablesTables are the tables iptables-nft makes in nf_tables.
func iptablesTables() []string { return []string{"filter", "nat", "mangle", "raw", "security"} }

// RemoveEmptyTables removes the tables that iptables-nft makes and never takes away: those
// with its names in which nothing is but chains of the kernel's hooks that hold no rule and
// accept. Without them every packet goes the same way.
func RemoveEmptyTables(netns int) error {
	c, err := nftables.New(nftables.WithNetNSFd(netns))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		tables, err := c.ListTablesOfFamily(family)
		if err != nil {
			return fmt.Errorf("nftables: tables: %w", err)
		}
		chains, err := c.ListChainsOfTableFamily(family)
		if err != nil {
			return fmt.Errorf("nftables: chains: %w", err)
		}
		for _, t := range tables {
			if !slices.Contains(iptablesTables(), t.Name) || !emptyTable(c, t, chains) {
				continue
			}
			c.DelTable(t)
			if err := c.Flush(); err != nil {
				return fmt.Errorf("nftables: table %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

func emptyTable(c *nftables.Conn, t *nftables.Table, chains []*nftables.Chain) bool {
	for _, ch := range chains {
		if ch.Table.Name != t.Name {
			continue
		}
		if ch.Hooknum == nil || ch.Policy != nil && *ch.Policy != nftables.ChainPolicyAccept {
			return false
		}
		if rules, err := c.GetRules(t, ch); err != nil || len(rules) > 0 {
			return false
		}
	}
	sets, err := c.GetSets(t)
	if err != nil || len(sets) > 0 {
		return false
	}
	objects, err := c.GetObjects(t)
	return err == nil && len(objects) == 0
}
