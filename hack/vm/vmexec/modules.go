package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// moduleDirs are the parts of the kernel whose modules are taken, with what they
// depend on. Patterns end where a directory has more than is wanted.
func moduleDirs() []string {
	return []string{
		"kernel/net/netfilter", "kernel/net/ipv4/netfilter", "kernel/net/ipv6/netfilter", "kernel/net/bridge", "kernel/net/sctp",
		"kernel/net/sched/cls_bpf.ko", "kernel/net/sched/sch_ingress.ko", "kernel/net/sched/sch_netem.ko",
		"kernel/drivers/net/veth.ko", "kernel/drivers/net/dummy.ko", "kernel/drivers/net/macvlan.ko", "kernel/drivers/net/vxlan",
		"kernel/drivers/net/tun.ko", "kernel/drivers/net/ifb.ko",
	}
}

// module is one .ko with what its .modinfo section says.
type module struct {
	name, path string
	depends    []string
	aliases    []string
}

// addModules copies the modules and an index of them: lines `module NAME FILE NEEDS…`
// and `alias PATTERN NAME`.
func addModules(a *archive, k kernelFiles, without []string) error {
	files, err := moduleFiles(k.modules)
	if err != nil {
		return err
	}
	var list []module
	todo := wanted(k.modules, files)
	done := map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if done[name] || slices.Contains(without, name) {
			continue
		}
		done[name] = true
		m, err := readModule(name, files[name])
		if err != nil {
			return err
		}
		list, todo = append(list, m), append(todo, m.depends...)
	}
	var index bytes.Buffer
	for _, m := range list {
		fmt.Fprintf(&index, "module %s %s %s\n", m.name, filepath.Base(m.path), strings.Join(m.depends, " "))
		for _, alias := range m.aliases {
			fmt.Fprintf(&index, "alias %s %s\n", alias, m.name)
		}
		a.file("modules/"+filepath.Base(m.path), m.path)
	}
	a.data("modules/index", index.Bytes())
	return nil
}

// moduleFiles maps names, with underscores, to files.
func moduleFiles(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko") {
			out[moduleName(path)] = path
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s holds no .ko files (compressed modules are not read)", dir)
	}
	return out, err
}

func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

func wanted(dir string, files map[string]string) []string {
	var out []string
	for name, path := range files {
		rel, _ := filepath.Rel(dir, path)
		if slices.ContainsFunc(moduleDirs(), func(d string) bool { return rel == d || strings.HasPrefix(rel, d+"/") }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func readModule(name, path string) (module, error) {
	m := module{name: name, path: path}
	if path == "" {
		return m, fmt.Errorf("kernel module %s is needed and not there", name)
	}
	f, err := elf.Open(path)
	if err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	info := f.Section(".modinfo")
	if info == nil {
		return m, fmt.Errorf("%s has no .modinfo", path)
	}
	data, err := info.Data()
	if err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	for _, word := range strings.Split(string(data), "\x00") {
		if v, ok := strings.CutPrefix(word, "depends="); ok && v != "" {
			m.depends = strings.Split(strings.ReplaceAll(v, "-", "_"), ",")
		}
		if v, ok := strings.CutPrefix(word, "alias="); ok {
			m.aliases = append(m.aliases, v)
		}
	}
	return m, nil
}
