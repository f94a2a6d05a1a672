// Vmexec runs a test binary in a small virtual machine, for what the kernel of the
// machine at hand lacks (IPVS, dummy devices): a program with its arguments comes in,
// what it prints and its exit code go out. The machine is QEMU's in software, so it needs
// neither privileges nor KVM; its kernel is Debian's cloud kernel, fetched once. It has
// no network but what the program makes in it.
//
// It is made for `go test -exec`, of any package:
//
//	go build -o bin/ ./hack/vm/vmexec ./hack/vm/vminit
//	go test -exec "$PWD/bin/vmexec" -run IPVS ./test/kernel
//	go test -exec "$PWD/bin/vmexec" ./test/matrix
//
// The program runs as root in its package's directory, where every testdata directory
// of the module is found at the place it has in the tree; FAIRWAY_* of the environment
// is passed on. Files the program writes are lost (-update and profiles do nothing).
// The tools of the host listed in tools.go are there too, and modules are loaded when
// the kernel asks for them.
//
//	FAIRWAY_VM_MEMORY   MiB of memory (768)
//	FAIRWAY_VM_CACHE    where the kernel is kept (the user's cache directory/fairway/vm)
//	FAIRWAY_VM_KERNEL   a directory with boot/vmlinuz-* and lib/modules/* to use instead
//	FAIRWAY_VM_WITHOUT  modules, separated by commas, that the machine is to lack
//	FAIRWAY_VM_VERBOSE  1 shows the kernel's own messages
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: vmexec PROGRAM ARGUMENT…")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmexec:", err)
		code = 125
	}
	os.Exit(code)
}

// run returns the program's exit code, an error when it could not be run to its end.
func run(program string, args []string) (int, error) {
	qemu, err := findQEMU()
	if err != nil {
		return 0, err
	}
	k, err := findKernel()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "vmexec")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	image := filepath.Join(dir, "initrd")
	if err := writeImage(image, k, program, args); err != nil {
		return 0, err
	}
	for try := 1; ; try++ {
		code, err := boot(qemu, k.image, image, timeout(args))
		if !errors.Is(err, errDied) || try == tries {
			return code, err
		}
		fmt.Fprintf(os.Stderr, "vmexec: %v; once more\n", err)
	}
}

// tries is how often a machine is booted that dies under the program: on a host with many
// times more work than processors, software emulation sometimes resets.
const tries = 3

// writeImage puts everything the machine needs into its memory disk.
func writeImage(path string, k kernelFiles, program string, args []string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newArchive(f)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	guest := filepath.Join(filepath.Dir(self), "vminit")
	if _, err := os.Stat(guest); err != nil {
		return fmt.Errorf("%s: build it beside vmexec: go build -o %s ./hack/vm/vminit", guest, filepath.Dir(self))
	}
	a.file("init", guest)
	a.link("sbin/modprobe", "/init")
	a.file("test", program)
	if err := addModules(a, k, strings.Split(os.Getenv("FAIRWAY_VM_WITHOUT"), ",")); err != nil {
		return err
	}
	addTools(a)
	dir, err := addTestdata(a)
	if err != nil {
		return err
	}
	a.data("plan", []byte(plan(dir, args)))
	return a.close()
}

// plan is what the guest's first process reads: the directory, the environment and the
// arguments, each with a zero byte at its end.
func plan(dir string, args []string) string {
	words := []string{dir}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "FAIRWAY_") && !strings.HasPrefix(e, "FAIRWAY_VM_") {
			words = append(words, "env:"+e)
		}
	}
	for _, a := range args {
		words = append(words, "arg:"+a)
	}
	return strings.Join(words, "\x00")
}

// addTestdata copies the module's testdata directories and returns the working
// directory, both under /src in the guest.
func addTestdata(a *archive) (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	root := here
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) { // no module: a program of its own
			return "/", nil
		}
		root = filepath.Dir(root)
	}
	rel, err := filepath.Rel(root, here)
	if err != nil {
		return "", err
	}
	a.dir(filepath.Join("src", rel))
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && (name == "bin" || name == "lab" || name[0] == '.') {
			return filepath.SkipDir
		}
		if d.Name() != "testdata" {
			return nil
		}
		at, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		a.tree(filepath.Join("src", at), path)
		return filepath.SkipDir
	})
	return filepath.Join("/src", rel), err
}
