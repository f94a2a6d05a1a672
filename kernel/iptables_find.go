package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"fairway/proxy/iptables"
)

// FindIPTables finds the commands of a family and checks that the kernel knows every
// match and target the rules use. netns is the descriptor of a network namespace, 0
// for the current one. With AnyVariant the variant is the one whose tables the kubelet
// or a proxy before us already uses, else the one called iptables.
func FindIPTables(ctx context.Context, v6 bool, netns int, want Variant) (*IPTables, error) {
	t := &IPTables{v6: v6, netns: netns, variant: want}
	if want == AnyVariant {
		t.variant = t.choose(ctx)
	}
	t.tools = toolsOf(v6, t.variant)
	for _, name := range []string{t.tools.restore, t.tools.save, t.tools.rule} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%s: %w: install the Debian package iptables (apt-get install iptables)", name, ErrNoIPTables)
		}
	}
	if t.variant == AnyVariant {
		version, err := t.run(ctx, "", t.tools.rule, "--version")
		if err != nil {
			return nil, err
		}
		t.variant = LegacyVariant
		if strings.Contains(version, "nf_tables") {
			t.variant = NFTVariant
		}
	}
	return t, t.probe(ctx)
}

func toolsOf(v6 bool, v Variant) tools {
	name := "iptables"
	if v6 {
		name = "ip6tables"
	}
	if v != AnyVariant {
		name += "-" + string(v)
	}
	return tools{restore: name + "-restore", save: name + "-save", rule: name}
}

// choose looks for rules of Kubernetes in the tables of either variant. Listing legacy
// tables would create them, so they are listed only when the kernel names some.
func (t *IPTables) choose(ctx context.Context) Variant {
	for _, v := range []Variant{LegacyVariant, NFTVariant} {
		if v == LegacyVariant && !t.legacyInUse() {
			continue
		}
		tool := toolsOf(t.v6, v).save
		if _, err := exec.LookPath(tool); err != nil {
			continue
		}
		out, err := t.run(ctx, "", tool, "-t", iptables.Mangle)
		if err == nil && strings.Contains(out, "\n:KUBE-") {
			return v
		}
	}
	return AnyVariant
}

func (t *IPTables) legacyInUse() bool {
	path := "/proc/thread-self/net/ip_tables_names"
	if t.v6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	var names []byte
	err := inNetNS(t.netns, func() (err error) {
		names, err = os.ReadFile(path)
		return err
	})
	return err == nil && strings.Contains(string(names), iptables.Mangle)
}

// probe loads one rule of each shape into a chain nothing leads to. When the kernel
// refuses, each is tried alone, and the error names what is missing; what only some
// Services need is left to fail with them.
func (t *IPTables) probe(ctx context.Context) error {
	all := iptables.Probes(t.v6)
	input := ""
	for _, p := range all {
		input += p.Input
	}
	if t.Restore(ctx, input) == nil {
		return nil
	}
	var errs []error
	for _, p := range all {
		if err := t.Restore(ctx, p.Input); err != nil && !p.Optional {
			errs = append(errs, fmt.Errorf("%s, needed for %s: %w", p.Module, p.Use, err))
		}
	}
	return errors.Join(errs...)
}
