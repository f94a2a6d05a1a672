package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools are the host's programs that backends and tests call, where they are installed.
func tools() []string {
	names := []string{"ip", "ipset", "nft", "conntrack", "sysctl", "sh", "ping", "nsenter", "ipvsadm", "tc"}
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, variant := range []string{"", "-nft", "-legacy"} {
			names = append(names, tool+variant, tool+variant+"-save", tool+variant+"-restore")
		}
	}
	return names
}

// addTools copies the tools with the libraries they need, each where it is on the host.
func addTools(a *archive) {
	for _, name := range tools() {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		addProgram(a, path)
	}
	// What they open by themselves: iptables its matches and targets, name files.
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu/xtables", "/lib/x86_64-linux-gnu/xtables", "/usr/lib/xtables"} {
		list, _ := filepath.Glob(dir + "/*.so")
		for _, so := range list {
			addProgram(a, so)
		}
	}
	for _, name := range []string{"/etc/protocols", "/etc/services", "/etc/ethertypes"} {
		if _, err := os.Stat(name); err == nil {
			a.file(name, name)
		}
	}
}

// addProgram copies a program or library, the links that lead to it, and what it needs.
func addProgram(a *archive, path string) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	if path != target {
		a.link(path, target)
	}
	if a.seen[strings.Trim(target, "/")] {
		return
	}
	a.file(target, target)
	f, err := elf.Open(target)
	if err != nil {
		return // a script
	}
	defer f.Close()
	if interp := f.Section(".interp"); interp != nil {
		if b, err := interp.Data(); err == nil {
			addProgram(a, strings.TrimRight(string(b), "\x00"))
		}
	}
	needed, _ := f.ImportedLibraries()
	for _, lib := range needed {
		for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/lib", "/usr/lib"} {
			if _, err := os.Stat(filepath.Join(dir, lib)); err == nil {
				addProgram(a, filepath.Join(dir, lib))
				break
			}
		}
	}
}
