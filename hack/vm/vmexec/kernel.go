package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// metaPackage depends on the current cloud kernel of the Debian at hand. That kernel is
// small, boots in seconds and has IPVS and dummy devices as modules.
const metaPackage = "linux-image-cloud-amd64"

// kernelFiles are where a kernel and its modules lie.
type kernelFiles struct {
	image, modules string
}

// findKernel takes the kernel from the cache, where it is put when it is not there.
func findKernel() (kernelFiles, error) {
	dir := os.Getenv("FAIRWAY_VM_KERNEL")
	if dir != "" {
		return kernelIn(dir)
	}
	cache, err := cacheDir()
	if err != nil {
		return kernelFiles{}, err
	}
	dir = filepath.Join(cache, "kernel")
	if k, err := kernelIn(dir); err == nil {
		return k, nil
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return kernelFiles{}, err
	}
	defer unlock()
	if k, err := kernelIn(dir); err == nil { // another test binary fetched it meanwhile
		return k, nil
	}
	if err := fetchKernel(cache, dir); err != nil {
		return kernelFiles{}, fmt.Errorf("a kernel for the virtual machine: %w", err)
	}
	return kernelIn(dir)
}

func cacheDir() (string, error) {
	dir := os.Getenv("FAIRWAY_VM_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "fairway", "vm")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

func kernelIn(dir string) (kernelFiles, error) {
	images, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	modules, _ := filepath.Glob(filepath.Join(dir, "lib", "modules", "*"))
	if len(images) != 1 || len(modules) != 1 {
		return kernelFiles{}, fmt.Errorf("%s: want one boot/vmlinuz-* and one lib/modules/*, found %d and %d", dir, len(images), len(modules))
	}
	return kernelFiles{image: images[0], modules: modules[0]}, nil
}

// fetchKernel downloads and unpacks Debian's package; nothing is installed.
func fetchKernel(cache, dir string) error {
	name, err := kernelPackage()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintln(os.Stderr, "vmexec: fetching", name, "once")
	if err := command(tmp, "apt-get", "-q", "download", name); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages", name, len(debs))
	}
	tree := filepath.Join(tmp, "tree")
	if err := command(tmp, "dpkg-deb", "-x", debs[0], tree); err != nil {
		return err
	}
	_ = os.RemoveAll(dir)
	return os.Rename(tree, dir)
}

// kernelPackage is the first linux-image the meta package depends on.
func kernelPackage() (string, error) {
	out, err := exec.Command("apt-cache", "depends", metaPackage).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends %s: %w (is this Debian?)", metaPackage, err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(name, "linux-image-") {
			return name, nil
		}
	}
	return "", errors.New("apt knows no " + metaPackage + ": run apt-get update")
}

func command(dir string, args ...string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
